import { checkGrowth, inOrder, type Part } from "./part.js";
import { setOf } from "./code-points.js";
import { bytesToChars } from "./byte-chars.js";
import { readPrecompiled } from "./precompiled.js";
import { eachOf, readPattern } from "./split.js";

export interface Normalizer {
  readonly normalize: (text: string) => string;
  /** Whether it can remove the start of a text, so that the rest no longer counts as the start. */
  readonly dropsBeginning: boolean;
}

/** Creates the normalizer described by a tokenizer.json. Throws UsageError for one not known to match Python's. */
export function readNormalizer(part: Part): Normalizer {
  const simple = (normalize: (text: string) => string): Normalizer => ({ normalize, dropsBeginning: false });
  const dropping = (normalize: (text: string) => string): Normalizer => ({ normalize, dropsBeginning: true });
  switch (part.type) {
    case "Sequence": {
      const all = part.parts("normalizers").map((each) => each.read(readNormalizer));
      const steps = all.map(({ normalize }) => normalize);
      return {
        normalize: inOrder(part, steps, (text: string) => text.length),
        dropsBeginning: all.some(({ dropsBeginning }) => dropsBeginning),
      };
    }
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD": {
      const form = part.type;
      return simple((text) => toForm(text, form));
    }
    case "Lowercase":
      return simple(lowercase);
    case "StripAccents":
      return dropping((text) => without(text, "marks"));
    case "Strip": {
      const [left, right] = [part.boolean("strip_left"), part.boolean("strip_right")];
      return { normalize: (text) => strip(text, left, right), dropsBeginning: left };
    }
    case "Prepend": {
      const prepended = part.string("prepend");
      // Real files prepend one character; a text of megabytes would be prepended to every encoded text.
      if (prepended.length > LONGEST_PREPEND) {
        throw part.refuse(
          "too-long",
          "prepend",
          `must have at most ${LONGEST_PREPEND} characters, but has ${prepended.length}`,
        );
      }
      return simple((text) => (text === "" ? "" : prepended + text));
    }
    case "Replace": {
      const pattern = readPattern(part);
      const content = part.string("content");
      const normalize = (text: string) => replace(text, pattern.matches(text), content, part.where);
      return { normalize, dropsBeginning: content === "" };
    }
    case "ByteLevel":
      return simple(bytesToChars);
    case "BertNormalizer":
      return readBert(part);
    case "Precompiled":
      return dropping(readPrecompiled(part));
    default:
      throw part.refuse("unsupported-type", "type", "this normalizer is not supported");
  }
}

function readBert(part: Part): Normalizer {
  const clean = part.boolean("clean_text");
  const chinese = part.boolean("handle_chinese_chars");
  const lower = part.boolean("lowercase");
  const accents = part.boolean("strip_accents", { fallback: null }) ?? lower;
  const normalize = (text: string) => {
    let current = text;
    if (clean) current = cleanText(current);
    if (chinese) current = aroundChinese(current);
    if (accents) current = without(toForm(current, "NFD"), "accents");
    return lower ? lowercase(current) : current;
  };
  return { normalize, dropsBeginning: clean || accents };
}

const LONGEST_PREPEND = 1000;

const ASCII = /^[\0-\x7f]*$/;

/**
 * A Unicode normal form as computed by Python's library, whose Unicode tables are older than Node's: characters unknown
 * to it stay unchanged, and are neither reordered nor composed with others.
 */
function toForm(text: string, form: "NFC" | "NFD" | "NFKC" | "NFKD"): string {
  if (ASCII.test(text)) return text;
  return replaced(
    text,
    eachOf(setOf("notNormalized"))(text),
    (unknown) => unknown,
    (known) => known.normalize(form),
  );
}

function mapped(text: string, change: (char: string, point: number) => string): string {
  let result = "";
  for (const char of text) result += change(char, char.codePointAt(0)!);
  return result;
}

/** Character by character: unlike in JavaScript, a final sigma is no special case. */
function lowercase(text: string): string {
  return ASCII.test(text) ? text.toLowerCase() : mapped(text, (char) => char.toLowerCase());
}

function without(text: string, name: "marks" | "accents"): string {
  if (ASCII.test(text)) return text;
  const set = setOf(name);
  return mapped(text, (char, point) => (set.has(point) ? "" : char));
}

function cleanText(text: string): string {
  const [removed, space] = [setOf("bertRemoved"), setOf("bertSpace")];
  return mapped(text, (char, point) => (space.has(point) ? " " : removed.has(point) ? "" : char));
}

function aroundChinese(text: string): string {
  if (ASCII.test(text)) return text;
  const chinese = setOf("cjk");
  return mapped(text, (char, point) => (chinese.has(point) ? ` ${char} ` : char));
}

/** All White_Space characters are in the basic multilingual plane. */
export function strip(text: string, left: boolean, right: boolean): string {
  const space = setOf("space");
  let [start, end] = [0, text.length];
  if (left) while (start < end && space.has(text.charCodeAt(start))) start++;
  if (right) while (end > start && space.has(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

export function replace(text: string, matches: readonly number[], content: string, place: string): string {
  checkGrowth(place, text.length, (matches.length / 2) * content.length);
  return replaced(text, matches, () => content);
}

/** A text with the matches, [start, end, …], and the parts between them replaced. */
function replaced(
  text: string,
  matches: readonly number[],
  match: (part: string) => string,
  between: (part: string) => string = (part) => part,
): string {
  let result = "";
  let position = 0;
  for (let index = 0; index < matches.length; index += 2) {
    const [start, end] = [matches[index]!, matches[index + 1]!];
    result += between(text.slice(position, start)) + match(text.slice(start, end));
    position = end;
  }
  return result + between(text.slice(position));
}
