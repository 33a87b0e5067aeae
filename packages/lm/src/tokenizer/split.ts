import type { CodePointSet } from "./code-points.js";
import type { Part } from "./part.js";
import { Pattern } from "./pattern.js";

/** A part of a text during tokenization. */
export interface Piece {
  readonly text: string;
  /** Whether it contains the first character of the original text. */
  readonly first: boolean;
}

export const BEHAVIORS = [
  "Removed",
  "Isolated",
  "MergedWithPrevious",
  "MergedWithNext",
  "Contiguous",
] as const;
export type Behavior = (typeof BEHAVIORS)[number];

/** Finds separators: [start, end, …]. */
export type Finder = (text: string) => readonly number[];

/** Each character of a set as a separate match. */
export function eachOf(set: CodePointSet): Finder {
  return (text) => {
    const found: number[] = [];
    for (let index = 0; index < text.length;) {
      const point = text.codePointAt(index) as number;
      const end = index + (point > 0xffff ? 2 : 1);
      if (set.has(point)) found.push(index, end);
      index = end;
    }
    return found;
  };
}

/** Reads {"Regex": …} or {"String": …}. */
export function readPattern(part: Part): Pattern {
  const [regex = null, literal = null] =
    part.nested("pattern")?.read((given) => {
      return ["Regex", "String"].map((name) => given.string(name, { fallback: null }));
    }) ?? [];
  if ((regex === null) === (literal === null))
    throw part.error("invalid-pattern", "pattern", '{"Regex": …} or {"String": …}');
  const refuse = (why: string) =>
    part.refuse(
      "untranslatable-pattern",
      "pattern",
      `a pattern is used only where it matches as in Python: ${why}`,
    );
  return regex === null ? Pattern.literal(literal!, refuse) : new Pattern(regex, refuse);
}

export function readBehavior(part: Part, options: { fallback?: Behavior } = {}): Behavior {
  return part.field(
    "unknown-choice",
    "behavior",
    options,
    `one of ${BEHAVIORS.join(", ")}`,
    (value): value is Behavior => {
      return BEHAVIORS.includes(value as Behavior);
    },
  );
}

/** Splits a piece at separators, which are handled according to `behavior`. No resulting piece is empty. */
export function splitPiece(
  { text, first }: Piece,
  separators: readonly number[],
  behavior: Behavior,
  invert = false,
): Piece[] {
  // (end, whether this part is a separator)
  const ends: number[] = [];
  const separates: boolean[] = [];
  let position = 0;
  const add = (end: number, separator: boolean) => {
    if (end === position) return;
    ends.push(end);
    separates.push(separator !== invert);
    position = end;
  };
  for (let index = 0; index < separators.length; index += 2) {
    add(separators[index]!, false);
    add(separators[index + 1]!, true);
  }
  add(text.length, false);

  const pieces: Piece[] = [];
  let start = 0;
  const cut = (end: number) => {
    pieces.push({ text: text.slice(start, end), first: first && start === 0 });
    start = end;
  };
  for (const [index, end] of ends.entries()) {
    const here = separates[index]!;
    const next = separates[index + 1];
    switch (behavior) {
      case "Removed":
        if (here) start = end;
        else cut(end);
        break;
      case "Isolated":
        cut(end);
        break;
      case "Contiguous":
        if (next !== here) cut(end);
        break;
      case "MergedWithPrevious":
        // A separator is merged with the preceding text, unless that is a separator too.
        if (here || !(next ?? false)) cut(end);
        break;
      case "MergedWithNext":
        if (!here || (next ?? true)) cut(end);
        break;
    }
  }
  return pieces;
}
