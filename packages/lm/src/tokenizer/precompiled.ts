import { isUtf8 } from "node:buffer";
import {
  category,
  CodePointSet,
  complement,
  intersection,
  scriptOf,
  union,
  type Ranges,
} from "./code-points.js";
import type { Part } from "./part.js";

const NEWLINE = 10;

/**
 * The character map of a SentencePiece model: a double-array trie over UTF-8 bytes, then the replacements, each
 * terminated by a zero byte. As in Python, a grapheme cluster of fewer than 6 bytes is first looked up as a whole, and
 * the shortest entry that is a prefix of it replaces all of it; otherwise each character is looked up separately.
 */
export function readPrecompiled(part: Part): (text: string) => string {
  const encoded = part.string("precompiled_charsmap", { fallback: "" });
  if (encoded === "") return (text) => text;
  const bytes = Buffer.from(encoded, "base64");
  const fail = (why: string) =>
    part.refuse("damaged-charsmap", "precompiled_charsmap", why, "the file is damaged: download it again");
  const size = bytes.length >= 4 ? bytes.readUInt32LE(0) : 0;
  if (size === 0 || size % 4 !== 0 || 4 + size > bytes.length) {
    throw fail("it is shorter than the trie whose length it begins with");
  }
  const units = Uint32Array.from({ length: size / 4 }, (_, index) => bytes.readUInt32LE(4 + index * 4));
  const replacements = bytes.subarray(4 + size);
  if (!isUtf8(replacements)) throw fail("its replacements are no UTF-8");
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
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
  return (text) => {
    let result = "";
    for (const grapheme of graphemesOf(text)) {
      if (grapheme.length < 6 && Buffer.byteLength(grapheme) < 6) {
        const whole = transform(grapheme);
        if (whole !== null) {
          result += whole;
          continue;
        }
      }
      for (const char of grapheme) result += transform(char) ?? char;
    }
    return result;
  };
}

/**
 * Characters between any two of which a grapheme cluster always ends: the majority, so that the slow segmenter is
 * rarely needed.
 */
function makeSimple(): CodePointSet {
  const kinds = ["Lu", "Ll", "Lt", "Nd", "Nl", "No", "P", "S", "Z"].map((name) => category(name)!);
  const scripts = ["Han", "Hiragana", "Katakana", "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew"];
  const letters = [...scripts, "Thai", "Devanagari"].map((name) =>
    intersection(scriptOf(name)!, category("Lo")!),
  );
  const hangul: Ranges = [[0xac00, 0xd7a3]];
  const all = union(...kinds, ...letters, hangul, [[NEWLINE, NEWLINE]]);
  // Regional indicators, skin tones; Thai's "am", which combines with the preceding character; half-width sound marks.
  const never: Ranges = [
    [0xe33, 0xe33],
    [0xff9e, 0xff9f],
    [0x1f1e6, 0x1f1ff],
    [0x1f3fb, 0x1f3ff],
  ];
  return new CodePointSet(intersection(all, complement(never)));
}

// Made when the first text needs them: commands that read no such tokenizer start without them.
let simpleSet: CodePointSet | undefined;
let segmenter: Intl.Segmenter | undefined;

function* graphemesOf(text: string): Iterable<string> {
  simpleSet ??= makeSimple();
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  let start = 0;
  let before = false; // whether the preceding character is a simple one
  for (let index = 0; index <= text.length;) {
    const point = index < text.length ? (text.codePointAt(index) as number) : NEWLINE;
    const here = simpleSet.has(point);
    if (index > start && (index === text.length || (before && here))) {
      const stretch = text.slice(start, index);
      const single =
        stretch.length === 1 || (stretch.length === 2 && (stretch.codePointAt(0) as number) > 0xffff);
      if (single) yield stretch;
      else for (const { segment } of segmenter.segment(stretch)) yield segment;
      start = index;
    }
    before = here;
    index += point > 0xffff ? 2 : 1;
  }
}
