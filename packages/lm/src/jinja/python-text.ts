/** Python's methods of str, which count code points and have their own definition of white space. */
import { codePoints, isWide, TemplateError } from "./values.js";

/** `str.isspace`, as a class of a regular expression. JavaScript's `\s` differs: it has U+FEFF and lacks U+001C to U+001F and U+0085. */
export const SPACE =
  "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const isSpace = new RegExp(`^${SPACE}$`);
/** Where `str.splitlines` breaks. */
const LINE_BREAKS = "[\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029]";
const LINE_END = new RegExp(`\\r\\n|${LINE_BREAKS}`, "g");

/** The code points of a text, or the text itself if its units are its code points. */
export const units = (text: string): string | string[] => (isWide(text) ? Array.from(text) : text);

const joined = (part: string | string[]): string => (typeof part === "string" ? part : part.join(""));

export function slicedText(text: string, start: number, stop: number): string {
  return joined(units(text).slice(start, stop));
}

/** Position in code points of a position in UTF-16. */
const position = (text: string, index: number): number =>
  index < 0 || !isWide(text) ? index : Array.from(text.slice(0, index)).length;

/** `strip`, `lstrip`, `rstrip`: removes characters in `characters` (white space if null). */
export function stripped(text: string, side: "both" | "left" | "right", characters: string | null): string {
  const members = characters === null ? null : new Set(characters);
  const isCut = (unit: string) => (members === null ? isSpace.test(unit) : members.has(unit));
  const all = units(text);
  let start = 0;
  let end = all.length;
  if (side !== "right") while (start < end && isCut(all[start]!)) start++;
  if (side !== "left") while (end > start && isCut(all[end - 1]!)) end--;
  return joined(all.slice(start, end));
}

/** `split`, from the left, or `rsplit`, from the right. @param most maximum number of splits; below 0: no limit */
export function split(
  text: string,
  separator: string | null,
  most: number,
  from: "left" | "right",
): string[] {
  const limit = most < 0 ? Infinity : most;
  if (separator === null) return splitWords(text, limit, from);
  if (separator === "") throw new TemplateError("empty separator");
  if (limit === Infinity) return text.split(separator);
  const parts: string[] = [];
  if (from === "left") {
    let start = 0;
    for (
      let at = text.indexOf(separator);
      at >= 0 && parts.length < limit;
      at = text.indexOf(separator, start)
    ) {
      parts.push(text.slice(start, at));
      start = at + separator.length;
    }
    return [...parts, text.slice(start)];
  }
  let end = text.length;
  while (parts.length < limit) {
    const at = end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length);
    if (at < 0) break;
    parts.push(text.slice(at + separator.length, end));
    end = at;
  }
  return [...parts, text.slice(0, end)].reverse();
}

function splitWords(text: string, limit: number, from: "left" | "right"): string[] {
  const words = [...text.matchAll(new RegExp(`(?:(?!${SPACE})[^])+`, "g"))];
  if (words.length <= limit) return words.map(([word]) => word);
  if (from === "left") {
    return [...words.slice(0, limit).map(([word]) => word), text.slice(words[limit]!.index)];
  }
  const last = words[words.length - limit - 1]!;
  return [
    text.slice(0, last.index + last[0].length),
    ...words.slice(words.length - limit).map(([word]) => word),
  ];
}

export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let start = 0;
  for (const { 0: end, index } of text.matchAll(LINE_END)) {
    lines.push(text.slice(start, index + (keepEnds ? end.length : 0)));
    start = index + end.length;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

/** `str.replace`. @param most maximum number of replacements; below 0: no limit */
export function replaced(text: string, old: string, by: string, most: number): string {
  if (old === "") {
    const all = Array.from(text);
    const parts: string[] = [];
    for (let at = 0; at <= all.length; at++) {
      if (most < 0 || at < most) parts.push(by);
      if (at < all.length) parts.push(all[at]!);
    }
    return parts.join("");
  }
  return split(text, old, most, "left").join(by);
}

/** Number of non-overlapping occurrences. */
export function occurrences(text: string, part: string): number {
  if (part === "") return codePoints(text) + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count++;
  return count;
}

/** `find` and `rfind`, within a slice as Python reads it. @returns a position in code points, or -1 */
export function found(
  text: string,
  part: string,
  from: "left" | "right",
  start: number,
  stop: number,
): number {
  if (start > stop) return -1;
  const slice = slicedText(text, start, stop);
  const at = from === "left" ? slice.indexOf(part) : slice.lastIndexOf(part);
  return at < 0 ? -1 : start + position(slice, at);
}

const first = (text: string) => Array.from(text)[0] ?? "";

/** A text with its first letter in title case and the others in lower case. */
export function capitalized(text: string): string {
  const initial = first(text);
  return titleCase(initial) + text.slice(initial.length).toLowerCase();
}

/**
 * Unicode's title case differs from upper case for these letters, and for ligatures, of which only the first letter is
 * upper case.
 */
function titleCase(letter: string): string {
  const digraph = "ǄǅǆǇǈǉǊǋǌǱǲǳ".indexOf(letter);
  if (letter !== "" && digraph >= 0) return "ǅǅǅǈǈǈǋǋǋǲǲǲ"[digraph]!;
  const upper = letter.toUpperCase();
  if (upper.length > letter.length) return first(upper) + upper.slice(first(upper).length).toLowerCase();
  return upper;
}

/** `str.title`: letters after other letters are in lower case. */
export function titled(text: string): string {
  return text.replace(/\p{L}+/gu, capitalized);
}

export function swapped(text: string): string {
  return Array.from(text, (letter) => {
    const lower = letter.toLowerCase();
    return lower === letter ? letter.toUpperCase() : lower;
  }).join("");
}

const every = (pattern: RegExp) => (text: string) => text !== "" && pattern.test(text);

/** Python's predicates on texts, by name. */
export const questions: Readonly<Record<string, (text: string) => boolean>> = {
  isalnum: every(/^[\p{L}\p{N}]*$/u),
  isalpha: every(/^\p{L}*$/u),
  // eslint-disable-next-line no-control-regex
  isascii: (text) => /^[\x00-\x7f]*$/.test(text),
  isdecimal: every(/^\p{Nd}*$/u),
  isdigit: every(/^[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨]*$/u),
  isnumeric: every(/^\p{N}*$/u),
  isidentifier: (text) => /^[\p{XID_Start}_]\p{XID_Continue}*$/u.test(text),
  islower: (text) => text === text.toLowerCase() && /[\p{Ll}]/u.test(text),
  isupper: (text) => text === text.toUpperCase() && /[\p{Lu}]/u.test(text),
  isprintable: (text) => !/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(text),
  isspace: every(new RegExp(`^${SPACE}*$`)),
  istitle: (text) => /[\p{Lu}\p{Lt}]/u.test(text) && titled(text) === text,
};

/** A text padded to a width in code points. */
export function padded(text: string, width: number, fill: string, side: "left" | "right" | "both"): string {
  const missing = width - codePoints(text);
  if (missing <= 0) return text;
  if (side === "left") return fill.repeat(missing) + text;
  if (side === "right") return text + fill.repeat(missing);
  // If the padding is odd, Python puts the larger half on the left if the width is odd, else on the right.
  const left = Math.floor(missing / 2) + (missing & width & 1);
  return fill.repeat(left) + text + fill.repeat(missing - left);
}
