import { parse } from "oniguruma-parser/parser";
import { category, complement, intersection, rangesOf, scriptOf, union, type Ranges } from "./code-points.js";

type RegexNode = ReturnType<typeof parse>;
type Alternative = RegexNode["body"][number];
type Node = Alternative["body"][number];
type Of<Type extends string> = Extract<Node, { type: Type }>;
type ClassMember = Of<"CharacterClass">["body"][number];

/** Part of the translation, with the minimum number of characters that it matches. */
interface Translated {
  readonly source: string;
  readonly shortest: number;
}

const LONGEST_SOURCE = 20_000;
const NEWLINE = 10;
const ASCII: Ranges = [[0, 127]];
/** Pairs that case-fold to one character ("ss" and "ß"), which Oniguruma matches in case-insensitive mode. */
const FOLDS_TOGETHER = /ss|st|ff|fi|fl|h\u0331|t\u0308|w\u030a|y\u030a|a\u02be|\u02bcn|j\u030c/i;
/** ASCII letters that case-fold with another character besides the other case. */
const FOLDS: readonly (readonly number[])[] = [
  [0x73, 0x53, 0x17f],
  [0x6b, 0x4b, 0x212a],
];

/**
 * Translates an Oniguruma pattern to a JavaScript one that matches the same as in Python's tokenizers. Classes are
 * expanded to code points from that library's tables, because its Unicode version and its `\w` differ from
 * JavaScript's.
 *
 * @param refuse creates the error for a pattern that cannot be parsed or is not known to match the same
 */
export function translateOniguruma(source: string, refuse: (why: string) => Error): RegExp {
  if (source.length > LONGEST_SOURCE) throw refuse(`it is longer than ${LONGEST_SOURCE} characters`);
  try {
    const whole = new Translator().alternatives(parsed(source), false);
    if (whole.shortest === 0) {
      throw new Untranslatable("it matches the empty text, after which engines continue differently");
    }
    return new RegExp(whole.source, "gu");
  } catch (cause) {
    if (cause instanceof RangeError) throw refuse("its groups are nested too deep");
    if (cause instanceof Untranslatable) throw refuse(cause.message);
    throw cause;
  }
}

class Untranslatable extends Error {}

function parsed(source: string): RegexNode["body"] {
  try {
    return parse(source, { skipPropertyNameValidation: true }).body;
  } catch (cause) {
    if (cause instanceof RangeError) throw cause;
    throw new Untranslatable(`it cannot be parsed: ${(cause as Error).message}`, { cause });
  }
}

class Translator {
  /** Number of capturing groups in the translation; they emulate atomic groups. */
  #captures = 0;

  /** @param folded whether matching ignores case */
  alternatives(body: readonly Alternative[], folded: boolean): Translated {
    const options = body.map((option) => this.#sequence(option, folded));
    return {
      source: options.map(({ source }) => source).join("|"),
      shortest: Math.min(...options.map(({ shortest }) => shortest)),
    };
  }

  #sequence({ body }: Alternative, folded: boolean): Translated {
    const letters = body.map((node) => (node.type === "Character" ? String.fromCodePoint(node.value) : "\0"));
    if (folded && FOLDS_TOGETHER.test(letters.join(""))) {
      throw new Untranslatable("two of its letters fold with one character when case is ignored");
    }
    const parts = body.map((node) => this.#node(node, folded));
    return {
      source: parts.map(({ source }) => source).join(""),
      shortest: parts.reduce((sum, { shortest }) => sum + shortest, 0),
    };
  }

  #node(node: Node, folded: boolean): Translated {
    switch (node.type) {
      case "Character":
      case "CharacterClass":
      case "CharacterSet":
        return { source: writeClass(rangesOfMember(node, folded)), shortest: 1 };
      case "CapturingGroup": {
        const { source, shortest } = this.alternatives(node.body, folded);
        return { source: `(?:${source})`, shortest };
      }
      case "Group": {
        const { enable, disable } = node.flags ?? {};
        const others = Object.keys({ ...enable, ...disable }).filter((name) => name !== "ignoreCase");
        if (others.length > 0) throw new Untranslatable("groups may only have the flag i");
        const isFolded = enable?.ignoreCase === true || (folded && disable?.ignoreCase !== true);
        const { source, shortest } = this.alternatives(node.body, isFolded);
        return { source: node.atomic === true ? this.#atomic(source) : `(?:${source})`, shortest };
      }
      case "Quantifier":
        return this.#repeated(node, folded);
      case "LookaroundAssertion": {
        if (node.kind === "lookbehind") throw new Untranslatable("look-behinds are not supported");
        const { source } = this.alternatives(node.body, folded);
        return { source: `(?${node.negate ? "!" : "="}${source})`, shortest: 0 };
      }
      case "Assertion":
        // No line starts after a newline at the end of the text.
        if (node.kind === "line_start") return { source: "(?:^|(?<=\\n)(?!$))", shortest: 0 };
        if (node.kind === "line_end") return { source: "(?=$|\\n)", shortest: 0 };
        throw new Untranslatable(`${node.kind.replaceAll("_", " ")} is not supported`);
      default:
        throw new Untranslatable(`a ${node.type.toLowerCase()} is not supported`);
    }
  }

  #repeated({ kind, min, max, body }: Of<"Quantifier">, folded: boolean): Translated {
    const { source, shortest } = this.#node(body, folded);
    if (shortest === 0) throw new Untranslatable("what can be empty cannot be repeated");
    // Oniguruma treats {n}? as "n times, or not at all".
    if (kind === "lazy" && min === max) {
      throw new Untranslatable('"{n}?" is read differently by different engines');
    }
    if (max === 0) throw new Untranslatable("{0} repeats nothing");
    const item = body.type === "Quantifier" ? `(?:${source})` : source;
    const repeated = `${item}{${min},${max === Infinity ? "" : max}}${kind === "lazy" ? "?" : ""}`;
    return {
      source: kind === "possessive" ? this.#atomic(repeated) : repeated,
      shortest: min * shortest,
    };
  }

  /** Emulates an atomic group: a look-ahead is not re-entered once it has matched. */
  #atomic(source: string): string {
    this.#captures += 1;
    return `(?:(?=(${source}))\\${this.#captures})`;
  }
}

function rangesOfMember(node: ClassMember, folded: boolean): Ranges {
  switch (node.type) {
    case "Character":
      return fold(rangeBetween(node.value, node.value), folded);
    case "CharacterClassRange":
      return rangeBetween(node.min.value, node.max.value);
    case "CharacterClass": {
      if (node.body.length === 0) throw new Untranslatable("a class has an empty part");
      const members = node.body.map((member) => rangesOfMember(member, false));
      const ranges = fold(
        node.kind === "union" ? union(...members) : members.reduce((one, other) => intersection(one, other)),
        folded,
      );
      return node.negate ? complement(ranges) : ranges;
    }
    default: {
      const ranges = rangesOfSet(node);
      if (String(fold(ranges, folded)) !== String(ranges)) {
        throw new Untranslatable(`${node.value ?? node.kind} is not supported when case is ignored`);
      }
      return ranges;
    }
  }
}

function rangeBetween(first: number, last: number): Ranges {
  if ([first, last].some((point) => point >= 0xd800 && point <= 0xdfff)) {
    throw new Untranslatable("a lone surrogate is not a character");
  }
  return [[first, last]];
}

function rangesOfSet({ kind, value, negate }: Of<"CharacterSet">): Ranges {
  let ranges: Ranges | undefined;
  if (kind === "dot") ranges = complement([[NEWLINE, NEWLINE]]);
  else if (kind === "digit") ranges = category("Nd");
  else if (kind === "space") ranges = rangesOf("space");
  else if (kind === "word") ranges = rangesOf("onigurumaWord");
  else if (kind === "property") ranges = scriptOf(value) ?? category(value);
  if (ranges === undefined) throw new Untranslatable(`the ${kind} ${value ?? ""} is not supported`);
  return negate === true ? complement(ranges) : ranges;
}

/** Adds the other case of ASCII letters, and the two characters that case-fold with one of them. */
function fold(ranges: Ranges, folded: boolean): Ranges {
  if (!folded) return ranges;
  const foldable = union(
    [
      [65, 90],
      [97, 122],
    ],
    ...FOLDS.map(pointsOf),
  );
  const others = intersection(ranges, complement(union(ASCII, foldable)));
  // A single non-ASCII letter would need the whole case-folding table; large sets contain both cases.
  if (others.length > 0 && ranges.length <= 2) {
    throw new Untranslatable("only ASCII letters are supported when case is ignored");
  }
  const more: Ranges[] = [ranges];
  for (const [first, last] of intersection(ranges, foldable)) {
    for (let point = first; point <= last; point++) {
      more.push(pointsOf(FOLDS.find((folds) => folds.includes(point)) ?? [point, point ^ 32]));
    }
  }
  return union(...more);
}

const pointsOf = (points: readonly number[]): Ranges => points.map((point) => [point, point]);

function writeClass(ranges: Ranges): string {
  const written = (point: number) => `\\u{${point.toString(16)}}`;
  return `[${ranges.map(([first, last]) => written(first) + (last > first ? `-${written(last)}` : "")).join("")}]`;
}
