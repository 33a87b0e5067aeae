import { pushBytes } from "./byte-chars.js";
import { replace } from "./normalizers.js";
import { inOrder, type Part } from "./part.js";
import { readMetaspaceOptions } from "./pre-tokenizers.js";
import { readPattern } from "./split.js";

/** Converts tokens to texts, which are finally concatenated. */
export type Decoder = (tokens: readonly string[]) => readonly string[];

/** Invalid bytes decode to U+FFFD, and U+FEFF is kept as an ordinary character. */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const strictDecoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** Creates the decoder described by a tokenizer.json. Throws UsageError for one not known to match Python's. */
export function readDecoder(part: Part): Decoder {
  switch (part.type) {
    case "Sequence": {
      const all = part.parts("decoders").map((each) => each.read(readDecoder));
      return inOrder(part, all, (texts) => texts.reduce((sum, text) => sum + text.length + 1, 0));
    }
    case "ByteLevel":
      part.ignore(["add_prefix_space", "trim_offsets", "use_regex"]); // affect encoding only
      return (tokens) => {
        const bytes: number[] = [];
        for (const token of tokens) pushBytes(token, bytes);
        return [decoder.decode(Uint8Array.from(bytes))];
      };
    case "ByteFallback":
      return byteFallback;
    case "Fuse":
      return (tokens) => [tokens.join("")];
    case "Metaspace": {
      const { replacement, scheme } = readMetaspaceOptions(part);
      part.ignore(["split"]); // affects encoding only
      return (tokens) =>
        tokens.map((token, index) => {
          return token.replaceAll(replacement, index === 0 && scheme !== "never" ? "" : " ");
        });
    }
    case "WordPiece": {
      const prefix = part.string("prefix");
      const cleanup = part.boolean("cleanup");
      return (tokens) =>
        tokens.map((token, index) => {
          let text = token;
          if (index > 0) text = token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
          return cleanup ? cleanUp(text).replaceAll(" do not", " don't") : text;
        });
    }
    case "BPEDecoder": {
      const suffix = part.string("suffix");
      if (suffix === "") throw part.refuse("empty", "suffix", "it must not be empty");
      return (tokens) =>
        tokens.map((token, index) => token.replaceAll(suffix, index === tokens.length - 1 ? "" : " "));
    }
    case "Replace": {
      const pattern = readPattern(part);
      const content = part.string("content");
      return (tokens) => tokens.map((token) => replace(token, pattern.matches(token), content, part.where));
    }
    case "Strip": {
      const content = part.character("content");
      const start = part.integer("start", { minimum: 0 });
      if (part.integer("stop", { minimum: 0 }) !== 0)
        throw part.refuse("unsupported-option", "stop", "stripping the end is not supported");
      return (tokens) =>
        tokens.map((token) => {
          let cut = 0;
          for (let count = 0; count < start && token.startsWith(content, cut); count++) cut += content.length;
          return token.slice(cut);
        });
    }
    default:
      throw part.refuse("unsupported-type", "type", "this decoder is not supported");
  }
}

/** The bytes that a token represents under a validated decoder of tokenizer.json; null if it represents text. */
export function tokenBytes(decoder: unknown, token: string): readonly number[] | null {
  const { type, decoders } = (decoder ?? {}) as { type?: unknown; decoders?: unknown };
  if (type === "Sequence") {
    for (const each of decoders as unknown[]) {
      const bytes = tokenBytes(each, token);
      if (bytes !== null) return bytes;
    }
  } else if (type === "ByteLevel") {
    const bytes: number[] = [];
    pushBytes(token, bytes);
    return bytes;
  } else if (type === "ByteFallback") {
    const byte = byteOf(token);
    if (byte !== null) return [byte];
  }
  return null;
}

/** The byte of a token such as "<0x41>"; null for any other. */
function byteOf(token: string): number | null {
  // Rust also parses "+5" as a number.
  const digits = /^<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>$/.exec(token)?.[1];
  return digits === undefined ? null : Number.parseInt(digits, 16);
}

/**
 * Decodes byte tokens such as "<0x41>". A run of them becomes its text, or one U+FFFD per byte if it is not valid
 * UTF-8.
 */
function byteFallback(tokens: readonly string[]): string[] {
  const texts: string[] = [];
  let bytes: number[] = [];
  const flush = () => {
    if (bytes.length === 0) return;
    try {
      texts.push(strictDecoder.decode(Uint8Array.from(bytes)));
    } catch {
      texts.push(...bytes.map(() => "\ufffd"));
    }
    bytes = [];
  };
  for (const token of tokens) {
    const byte = byteOf(token);
    if (byte !== null) {
      bytes.push(byte);
      continue;
    }
    flush();
    texts.push(token);
  }
  flush();
  return texts;
}

/** BERT's cleanup of spaces, enabled by `clean_up_tokenization_spaces`. */
export function cleanUp(text: string): string {
  return [
    [" .", "."],
    [" ?", "?"],
    [" !", "!"],
    [" ,", ","],
    [" ' ", "'"],
    [" n't", "n't"],
    [" 'm", "'m"],
    [" 's", "'s"],
    [" 've", "'ve"],
    [" 're", "'re"],
  ].reduce((current, [from, to]) => current.replaceAll(from!, to!), text);
}
