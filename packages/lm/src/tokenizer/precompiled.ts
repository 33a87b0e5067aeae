import type { Part } from "./part.js";

/**
 * The character map of a SentencePiece model: a double-array trie over UTF-8 bytes, behind it the replacements, each
 * ended by a zero byte. As in Python, a grapheme cluster of fewer than 6 bytes is looked up as a whole first, and the
 * shortest entry that it begins with replaces all of it; else each character is looked up by itself.
 */
export function readPrecompiled(part: Part): (text: string) => string {
  const encoded = part.string("precompiled_charsmap", { fallback: "" });
  if (encoded === "") return (text) => text;
  const bytes = Buffer.from(encoded, "base64");
  const fail = (why: string) =>
    part.refuse("precompiled_charsmap", why, "the file is damaged: fetch it once more");
  const size = bytes.length >= 4 ? bytes.readUInt32LE(0) : 0;
  if (size === 0 || size % 4 !== 0 || 4 + size > bytes.length) {
    throw fail("it does not hold the trie whose length it begins with");
  }
  const units = Uint32Array.from({ length: size / 4 }, (_, index) => bytes.readUInt32LE(4 + index * 4));
  const replacements = bytes.subarray(4 + size);
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const encoder = new TextEncoder();
  const cache = new Map<string, string | null>();

  const offset = (unit: number) => (unit >>> 10) << ((unit & (1 << 9)) >>> 6);
  const find = (chunk: Uint8Array): number | null => {
    let node = offset(units[0]!);
    for (const byte of chunk) {
      if (byte === 0) return null;
      node ^= byte;
      const unit = units[node];
      if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return null;
      node ^= offset(unit);
      if (((unit >>> 8) & 1) === 1) {
        const value = units[node];
        return value === undefined ? null : value & 0x7fffffff;
      }
    }
    return null;
  };
  const transform = (chunk: string): string | null => {
    let result = cache.get(chunk);
    if (result !== undefined) return result;
    const start = find(encoder.encode(chunk));
    result = null;
    if (start !== null && start < replacements.length) {
      const end = replacements.indexOf(0, start);
      result = decoder.decode(replacements.subarray(start, end < 0 ? replacements.length : end));
    }
    if (cache.size < 50_000) cache.set(chunk, result);
    return result;
  };
  const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
  return (text) => {
    let result = "";
    for (const { segment } of graphemes.segment(text)) {
      if (segment.length < 6 && Buffer.byteLength(segment) < 6) {
        const whole = transform(segment);
        if (whole !== null) {
          result += whole;
          continue;
        }
      }
      for (const char of segment) result += transform(char) ?? char;
    }
    return result;
  };
}
