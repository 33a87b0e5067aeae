// Patterns of tokenizer.json, written for Oniguruma. They come with a model, so whoever made the model chose them: they
// are matched in time linear in the text, by a backtracking machine that never explores a state twice. Must not know:
// tokenizers.
import {
  category,
  CodePointSet,
  complement,
  intersection,
  rangesOf,
  union,
  type Ranges,
} from "./code-points.js";

/** Thrown for a pattern that cannot be used; the message says where in it and why. */
export class PatternError extends Error {}

type Node =
  | { kind: "set"; ranges: Ranges }
  | { kind: "sequence"; items: Node[] }
  | { kind: "either"; options: Node[] }
  | { kind: "repeat"; item: Node; min: number; max: number; mode: "greedy" | "lazy" | "possessive" }
  | { kind: "look"; item: Node; negative: boolean }
  | { kind: "edge"; end: boolean };

/** What one step of the machine does; `next` is the step after it. */
type Step =
  | { op: "set"; set: CodePointSet; next: number }
  /** Greedy: as many as there are, then fewer. Possessive: as many as there are. */
  | { op: "run"; run: Run; possessive: boolean; next: number }
  | { op: "split"; first: number; second: number; index: number }
  | { op: "look"; start: number; negative: boolean; next: number }
  | { op: "edge"; end: boolean; next: number }
  | { op: "match" };

/** A program larger than this is no tokenizer's: {1000}{1000} would be a million steps. */
const MOST_STEPS = 4000;
const MOST_SPLITS = 512;
/** A look-ahead may look so many characters ahead. */
const LOOK_AHEAD = 32;
const DEEPEST = 64;

const NEWLINE = 10;

/**
 * Patterns of widespread checkpoints, which were looked at one by one: JavaScript's engine stays linear in them, since
 * where an alternative gives up after a long way, the next takes that way at once. Every other pattern goes to the
 * machine below.
 */
const KNOWN_PATTERNS: ReadonlySet<string> = new Set([
  // GPT-2 and all that took over its byte-level splitting
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  // Llama 3
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  // Qwen 2 and 3
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  // Mistral's tekken, GPT-4o
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`\p{N}{1,3}`,
]);

/** JavaScript's engine keeps a stack as long as the longest run; a text of this length cannot exhaust it. */
const LONGEST_NATIVE = 2 ** 21;

export class Pattern {
  readonly #steps: Step[] = [];
  readonly #start: number;
  #splits = 0;
  /** The same pattern for the engine of JavaScript, which is faster, where it is known to stay linear. */
  readonly #native: RegExp | null;

  /** Throws PatternError where the pattern is not one that is known to match as in Python. */
  constructor(readonly source: string) {
    const tree = new Parser(source).parse();
    if (shortest(tree) === 0) {
      throw new PatternError("it matches the empty text, where engines differ in what comes next");
    }
    this.#native = KNOWN_PATTERNS.has(source) ? new RegExp(written(tree), "gu") : null;
    this.#start = this.#compile(tree, this.#add({ op: "match" }));
    if (this.#splits > MOST_SPLITS) throw new PatternError("it has too many alternatives");
  }

  /** Literal text as a pattern. */
  static literal(text: string): Pattern {
    return new Pattern(text.replace(/[\\^$.*+?()[\]{}|&-]/g, "\\$&"));
  }

  /** Where the pattern matches, one match after another: [start, end, start, end, …] in UTF-16 units. */
  matches(text: string): number[] {
    const found: number[] = [];
    if (this.#native !== null && text.length <= LONGEST_NATIVE) {
      for (const { index, 0: match } of text.matchAll(this.#native)) found.push(index, index + match.length);
      return found;
    }
    const search = new Search(this.#steps, this.#splits, text);
    let position = 0;
    while (position < text.length) {
      const end = search.run(this.#start, position);
      if (end < 0) {
        position += (text.codePointAt(position) as number) > 0xffff ? 2 : 1;
      } else {
        found.push(position, end);
        position = end;
      }
    }
    return found;
  }

  #add(step: Step): number {
    if (this.#steps.length >= MOST_STEPS) throw new PatternError("it is too large when written out");
    return this.#steps.push(step) - 1;
  }

  /** Steps for a node, built from the end; gives the first. */
  #compile(node: Node, next: number): number {
    switch (node.kind) {
      case "set":
        return this.#add({ op: "set", set: new CodePointSet(node.ranges), next });
      case "sequence":
        return node.items.reduceRight((after, item) => this.#compile(item, after), next);
      case "either":
        return node.options
          .slice(0, -1)
          .reduceRight(
            (second, option) => this.#split(this.#compile(option, next), second),
            this.#compile(node.options.at(-1)!, next),
          );
      case "look":
        return this.#add({
          op: "look",
          start: this.#compile(node.item, this.#add({ op: "match" })),
          negative: node.negative,
          next,
        });
      case "edge":
        return this.#add({ op: "edge", end: node.end, next });
      case "repeat":
        return this.#repeat(node, next);
    }
  }

  #repeat({ item, min, max, mode }: Node & { kind: "repeat" }, next: number): number {
    let start = next;
    if (mode === "possessive" || (max === Infinity && item.kind === "set" && mode === "greedy")) {
      // The parser lets only sets be possessive.
      const set = new CodePointSet((item as Node & { kind: "set" }).ranges);
      const run = new Run(set, mode === "possessive" ? max : Infinity);
      start = this.#add({ op: "run", run, possessive: mode === "possessive", next });
    } else if (max === Infinity) {
      const loop = this.#split(-1, -1);
      const body = this.#compile(item, loop);
      const step = this.#steps[loop] as Step & { op: "split" };
      [step.first, step.second] = mode === "lazy" ? [next, body] : [body, next];
      start = loop;
    } else {
      for (let count = min; count < max; count++) {
        const body = this.#compile(item, start);
        start = mode === "lazy" ? this.#split(next, body) : this.#split(body, next);
      }
    }
    for (let count = 0; count < min; count++) start = this.#compile(item, start);
    return start;
  }

  #split(first: number, second: number): number {
    return this.#add({ op: "split", first, second, index: this.#splits++ });
  }
}

/** Repetition of one set, with what was found out about it during one search. */
class Run {
  constructor(
    readonly set: CodePointSet,
    readonly max: number,
  ) {}
}

/** What is remembered of a run in one text. */
interface Seen {
  start: number;
  end: number;
  /** By the end of the run: from which position on going on behind it is known to fail. */
  failed: Map<number, number>;
}

/**
 * One pattern over one text. Patterns capture nothing and refer to nothing back, so whether a step can lead to a match
 * from a position does not depend on how it was reached: what failed once is never tried again, also by later
 * searches. That bounds the work by steps × length.
 */
class Search {
  /** One bit for each split and position: it was tried from there. */
  readonly #tried: Uint32Array;
  readonly #width: number;
  readonly #seen = new Map<number, Seen>();
  /** Splits on the way to where the search is: (split, position) in turn. */
  readonly #trail: number[] = [];
  /** What to try next: (step, position, lowest position of a run or −1, end of the run, length of the trail). */
  readonly #stack: number[] = [];

  constructor(
    readonly steps: readonly Step[],
    splits: number,
    readonly text: string,
  ) {
    this.#width = text.length + 1;
    this.#tried = new Uint32Array(((splits * this.#width) >> 5) + 1);
  }

  /** Where the match that begins here ends; −1 where there is none. */
  run(startStep: number, startPosition: number): number {
    const { steps, text } = this;
    const stack = this.#stack;
    const trail = this.#trail;
    stack.length = trail.length = 0;
    let step = startStep;
    let position = startPosition;
    for (;;) {
      const now = steps[step]!;
      let ok = false;
      switch (now.op) {
        case "match": {
          // What led here did not fail. Only what lies at or behind the end can be asked for again.
          for (let index = trail.length - 2; index >= 0 && trail[index + 1]! >= position; index -= 2) {
            const bit = trail[index]! * this.#width + trail[index + 1]!;
            this.#tried[bit >> 5]! &= ~(1 << (bit & 31));
          }
          return position;
        }
        case "set":
          if (position < text.length) {
            const point = text.codePointAt(position) as number;
            if (now.set.has(point)) {
              position += point > 0xffff ? 2 : 1;
              step = now.next;
              ok = true;
            }
          }
          break;
        case "run": {
          const seen = this.#runFrom(step, now.run, position);
          if (now.possessive) {
            position = now.run.max === Infinity ? seen.end : this.#limited(now.run, position);
            step = now.next;
            ok = true;
            break;
          }
          const failed = seen.failed.get(seen.end);
          const end = failed === undefined ? seen.end : this.#before(failed, position);
          if (end >= position) {
            stack.push(step, end, position, seen.end, trail.length);
            position = end;
            step = now.next;
            ok = true;
          }
          break;
        }
        case "split": {
          const bit = now.index * this.#width + position;
          const word = bit >> 5;
          if (((this.#tried[word]! >>> (bit & 31)) & 1) === 0) {
            this.#tried[word]! |= 1 << (bit & 31);
            trail.push(now.index, position);
            stack.push(now.second, position, -1, -1, trail.length);
            step = now.first;
            ok = true;
          }
          break;
        }
        case "look":
          ok = this.#look(now.start, position) !== now.negative;
          step = now.next;
          break;
        case "edge":
          ok = now.end
            ? position === text.length || text.charCodeAt(position) === NEWLINE
            : position === 0 || text.charCodeAt(position - 1) === NEWLINE;
          step = now.next;
          break;
      }
      while (!ok) {
        if (stack.length === 0) return -1;
        const top = stack.length - 5;
        const lowest = stack[top + 2]!;
        trail.length = stack[top + 4]!;
        step = stack[top]!;
        position = stack[top + 1]!;
        if (lowest < 0) {
          stack.length = top;
          ok = true;
          break;
        }
        // Going on behind the run failed at this length of it: one character less.
        this.#seen.get(step)!.failed.set(stack[top + 3]!, position);
        position = this.#before(position, lowest);
        if (position < lowest) {
          stack.length = top;
          continue;
        }
        stack[top + 1] = position;
        step = (steps[step] as Step & { op: "run" }).next;
        ok = true;
      }
    }
  }

  /** The position one character earlier; −1 where that is below `lowest`. */
  #before(position: number, lowest: number): number {
    if (position <= lowest) return -1;
    const unit = this.text.charCodeAt(position - 1);
    return position - (unit >= 0xdc00 && unit < 0xe000 ? 2 : 1);
  }

  #runFrom(step: number, run: Run, position: number): Seen {
    let seen = this.#seen.get(step);
    if (seen === undefined) this.#seen.set(step, (seen = { start: 0, end: -1, failed: new Map() }));
    if (position >= seen.start && position <= seen.end) return seen;
    seen.end = this.#runEnd(run, position, seen);
    seen.start = position;
    return seen;
  }

  /** Where the run that holds a position ends; `known` is a part of the text that was walked already. */
  #runEnd({ set }: Run, position: number, known: Seen): number {
    const { text } = this;
    let end = position;
    while (end < text.length) {
      if (end === known.start && known.end > end) return known.end;
      const point = text.codePointAt(end) as number;
      if (!set.has(point)) break;
      end += point > 0xffff ? 2 : 1;
    }
    return end;
  }

  #limited({ set, max }: Run, position: number): number {
    const { text } = this;
    let end = position;
    for (let count = 0; count < max && end < text.length; count++) {
      const point = text.codePointAt(end) as number;
      if (!set.has(point)) break;
      end += point > 0xffff ? 2 : 1;
    }
    return end;
  }

  /** Look-aheads are short and hold no loops (the parser sees to that), so plain backtracking will do. */
  #look(step: number, position: number): boolean {
    const { steps, text } = this;
    const now = steps[step]!;
    switch (now.op) {
      case "match":
        return true;
      case "set": {
        if (position >= text.length) return false;
        const point = text.codePointAt(position) as number;
        return now.set.has(point) && this.#look(now.next, position + (point > 0xffff ? 2 : 1));
      }
      case "split":
        return this.#look(now.first, position) || this.#look(now.second, position);
      case "edge":
        if (now.end) return position === text.length || text.charCodeAt(position) === NEWLINE;
        return position === 0 || text.charCodeAt(position - 1) === NEWLINE;
      case "look":
      case "run":
        throw new Error("internal: a look-ahead holds no loop and no other look-ahead");
    }
  }
}

/** The node for JavaScript's engine. */
function written(node: Node): string {
  switch (node.kind) {
    case "set": {
      let text = "";
      for (let index = 0; index < node.ranges.length; index += 2) {
        const [first, last] = [node.ranges[index]!, node.ranges[index + 1]!];
        text += `\\u{${first.toString(16)}}` + (last > first ? `-\\u{${last.toString(16)}}` : "");
      }
      return `[${text}]`;
    }
    case "sequence":
      return node.items.map(written).join("");
    case "either":
      return `(?:${node.options.map(written).join("|")})`;
    case "look":
      return `(?${node.negative ? "!" : "="}${written(node.item)})`;
    case "repeat": {
      if (node.mode !== "greedy") throw new Error("internal: known patterns are greedy");
      return `(?:${written(node.item)}){${node.min},${node.max === Infinity ? "" : node.max}}`;
    }
    case "edge":
      throw new Error("internal: known patterns have no edges");
  }
}

/** Fewest characters that a node matches. */
function shortest(node: Node): number {
  switch (node.kind) {
    case "set":
      return 1;
    case "sequence":
      return node.items.reduce((sum, item) => sum + shortest(item), 0);
    case "either":
      return Math.min(...node.options.map(shortest));
    case "repeat":
      return node.min * shortest(node.item);
    case "look":
    case "edge":
      return 0;
  }
}

/** Ways through a node that has no loops, and most characters on one; both bounded. */
function extent(node: Node): { ways: number; length: number } {
  switch (node.kind) {
    case "set":
      return { ways: 1, length: 1 };
    case "sequence":
      return node.items
        .map(extent)
        .reduce((one, other) => ({ ways: one.ways * other.ways, length: one.length + other.length }), {
          ways: 1,
          length: 0,
        });
    case "either":
      return node.options.map(extent).reduce((one, other) => ({
        ways: one.ways + other.ways,
        length: Math.max(one.length, other.length),
      }));
    case "edge":
      return { ways: 1, length: 0 };
    case "look":
    case "repeat":
      return { ways: Infinity, length: Infinity };
  }
}

const SCRIPTS = [
  "Han",
  "Hiragana",
  "Katakana",
  "Hangul",
  "Thai",
  "Latin",
  "Greek",
  "Cyrillic",
  "Arabic",
] as const;
const SCRIPTS_MORE = ["Hebrew", "Devanagari"] as const;
/** Escapes of one character. */
const ESCAPED: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, f: 12, v: 11, a: 7, e: 27 };
/** Pairs that fold with one character ("ss" and "ß"), which Oniguruma honours where case does not count. */
const FOLDS_TOGETHER = /ss|st|ff|fi|fl|h\u0331|t\u0308|w\u030a|y\u030a|a\u02be|\u02bcn|j\u030c/i;

class Parser {
  #position = 0;
  #depth = 0;

  constructor(readonly source: string) {}

  parse(): Node {
    if (this.source.length > 20_000) throw new PatternError("it is longer than 20000 characters");
    const node = this.#either(false);
    if (this.#position < this.source.length) throw this.#error('there is a ")" without "("');
    return node;
  }

  #error(why: string): PatternError {
    return new PatternError(`at character ${this.#position + 1}: ${why}`);
  }

  #peek(text: string): boolean {
    return this.source.startsWith(text, this.#position);
  }

  #take(text: string): boolean {
    if (!this.#peek(text)) return false;
    this.#position += text.length;
    return true;
  }

  #next(): string {
    const point = this.source.codePointAt(this.#position);
    if (point === undefined) throw this.#error("it ends too early");
    const text = String.fromCodePoint(point);
    this.#position += text.length;
    return text;
  }

  #either(folded: boolean): Node {
    if (++this.#depth > DEEPEST) throw this.#error(`groups are nested more than ${DEEPEST} deep`);
    const options = [this.#sequence(folded)];
    while (this.#take("|")) options.push(this.#sequence(folded));
    this.#depth--;
    return options.length === 1 ? options[0]! : { kind: "either", options };
  }

  #sequence(folded: boolean): Node {
    const items: Node[] = [];
    const begin = this.#position;
    while (this.#position < this.source.length && !this.#peek("|") && !this.#peek(")")) {
      items.push(this.#repeated(this.#atom(folded)));
    }
    const text = this.source.slice(begin, this.#position);
    if (folded && FOLDS_TOGETHER.test(text)) {
      throw this.#error("two of its letters fold with one character where case does not count");
    }
    return items.length === 1 ? items[0]! : { kind: "sequence", items };
  }

  #atom(folded: boolean): Node {
    const char = this.#next();
    const set = (ranges: Ranges): Node => ({ kind: "set", ranges: folded ? fold(ranges) : ranges });
    switch (char) {
      case "(":
        return this.#group(folded);
      case "[":
        return set(this.#class());
      case ".":
        return { kind: "set", ranges: complement([NEWLINE, NEWLINE]) };
      case "^":
      case "$":
        return { kind: "edge", end: char === "$" };
      case "\\":
        return set(this.#escape());
      case "*":
      case "+":
      case "?":
        this.#position--;
        throw this.#error(`"${char}" has nothing before it to repeat`);
      case "{":
      case "}":
      case "]":
        this.#position--;
        throw this.#error(`"${char}" must be written "\\${char}"`);
      default:
        return set(one(char));
    }
  }

  #group(folded: boolean): Node {
    let node: Node;
    if (this.#take("?:")) node = this.#either(folded);
    else if (this.#take("?i:")) node = this.#either(true);
    else if (this.#peek("?=") || this.#peek("?!")) {
      const negative = this.#peek("?!");
      this.#position += 2;
      const item = this.#either(folded);
      const { ways, length } = extent(item);
      if (ways > 64 || length > LOOK_AHEAD) {
        throw this.#error(
          `a look-ahead may hold no repetition and look ${LOOK_AHEAD} characters ahead at most`,
        );
      }
      node = { kind: "look", item, negative };
    } else if (this.#peek("?")) throw this.#error("groups of this kind are not supported");
    else node = this.#either(folded);
    if (!this.#take(")")) throw this.#error('")" is missing');
    return node;
  }

  #repeated(item: Node): Node {
    for (let node = item; ;) {
      let [min, max] = [0, Infinity];
      const braces = /^\{(\d{1,4})(,(\d{0,4}))?\}/.exec(
        this.source.slice(this.#position, this.#position + 12),
      );
      const interval = braces !== null;
      if (this.#take("*")) [min, max] = [0, Infinity];
      else if (this.#take("+")) [min, max] = [1, Infinity];
      else if (this.#take("?")) [min, max] = [0, 1];
      else if (interval) {
        this.#position += braces[0].length;
        min = Number(braces[1]);
        max = braces[2] === undefined ? min : braces[3] === "" ? Infinity : Number(braces[3]);
        if (max < min || max === 0) throw this.#error("the counts in { } must rise");
      } else return node;
      if (node.kind === "look" || node.kind === "edge")
        throw this.#error("what has no length cannot be repeated");
      if (shortest(node) === 0) throw this.#error("what can be empty cannot be repeated");
      let mode: "greedy" | "lazy" | "possessive" = "greedy";
      if (this.#peek("?")) {
        // Oniguruma reads {n}? as "n times, or not at all".
        if (interval && min === max) throw this.#error('"{n}?" is read differently by different engines');
        this.#position++;
        mode = "lazy";
      } else if (this.#peek("+") && !interval) {
        // Behind { } a "+" repeats the repetition.
        this.#position++;
        mode = "possessive";
        if (node.kind !== "set")
          throw this.#error("only one character or class can be repeated possessively");
      }
      node = { kind: "repeat", item: node, min, max, mode };
    }
  }

  /** Behind a backslash. */
  #escape(): Ranges {
    const char = this.#next();
    const known = SHORTHANDS[char]?.();
    if (known !== undefined) return known;
    if (char === "p" || char === "P") {
      const found = /^\{(\^?)(\w+)\}/.exec(this.source.slice(this.#position, this.#position + 40));
      if (found === null) throw this.#error(`"\\${char}" must be followed by {…}`);
      const ranges = property(found[2]!);
      if (ranges === undefined) throw this.#error(`the property ${found[2]} is not supported`);
      this.#position += found[0].length;
      return (char === "P") !== (found[1] === "^") ? complement(ranges) : ranges;
    }
    if (char === "x" || char === "u") {
      const form = char === "u" ? /^([0-9A-Fa-f]{4})/ : /^(?:([0-7][0-9A-Fa-f])|\{([0-9A-Fa-f]{1,6})\})/;
      const found = form.exec(this.source.slice(this.#position, this.#position + 12));
      const point = found === null ? Infinity : Number.parseInt(found[1] ?? found[2]!, 16);
      if (found === null || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        throw this.#error(`"\\${char}" must be followed by a character's number`);
      }
      this.#position += found[0].length;
      return [point, point];
    }
    const control = ESCAPED[char];
    if (control !== undefined) return [control, control];
    if (/[A-Za-z0-9]/.test(char)) throw this.#error(`"\\${char}" is not supported`);
    return one(char);
  }

  /** Behind "[". */
  #class(): Ranges {
    if (++this.#depth > DEEPEST) throw this.#error(`classes are nested more than ${DEEPEST} deep`);
    const negated = this.#take("^");
    let parts: Ranges[] = [];
    let intersected: Ranges | undefined;
    const close = (): Ranges => {
      if (parts.length === 0) throw this.#error("a class has an empty part");
      const here = union(...parts);
      return intersected === undefined ? here : intersection(intersected, here);
    };
    while (!this.#take("]")) {
      if (this.#take("&&")) {
        intersected = close();
        parts = [];
        continue;
      }
      if (this.#peek("[:")) throw this.#error("[:…:] is not supported");
      if (this.#take("[")) {
        parts.push(this.#class());
        continue;
      }
      const first = this.#member();
      if (first.length === 2 && first[0] === first[1] && this.#peek("-") && !this.#peek("-]")) {
        this.#position++;
        if (this.#peek("[") || this.#peek("&&")) throw this.#error('"-" must be written "\\-" here');
        const last = this.#member();
        if (last.length !== 2 || last[0] !== last[1] || last[0]! < first[0]!) {
          throw this.#error("a range must go from one character to a later one");
        }
        parts.push([first[0]!, last[0]!]);
      } else parts.push(first);
    }
    const ranges = close();
    this.#depth--;
    return negated ? complement(ranges) : ranges;
  }

  #member(): Ranges {
    const char = this.#next();
    return char === "\\" ? this.#escape() : one(char);
  }
}

function one(char: string): Ranges {
  const point = char.codePointAt(0)!;
  return [point, point];
}

const SHORTHANDS: Readonly<Record<string, () => Ranges>> = {
  s: () => rangesOf("space"),
  S: () => complement(rangesOf("space")),
  d: () => category("Nd")!,
  D: () => complement(category("Nd")!),
  w: () => rangesOf("onigurumaWord"),
  W: () => complement(rangesOf("onigurumaWord")),
};

function property(name: string): Ranges | undefined {
  const script = [...SCRIPTS, ...SCRIPTS_MORE].find((known) => known === name);
  return script === undefined ? category(name) : rangesOf(script);
}

/** With the other case of its ASCII letters, and the two characters that fold with one of them. */
function fold(ranges: Ranges): Ranges {
  const letters = intersection(ranges, union([65, 90], [97, 122], [0x17f, 0x17f], [0x212a, 0x212a]));
  if (intersection(complement([0, 127]), ranges).length > 0 && ranges.length <= 4) {
    // A letter outside ASCII would need the whole table of folds.
    const other = intersection(ranges, complement([0, 127]));
    if (other.length > 0 && other.some((point) => point !== 0x17f && point !== 0x212a)) {
      throw new PatternError("where case does not count only ASCII letters are supported");
    }
  }
  const more: Ranges[] = [ranges];
  for (let index = 0; index < letters.length; index += 2) {
    for (let point = letters[index]!; point <= letters[index + 1]!; point++) {
      const all = [...FOLDS].find((folds) => folds.includes(point));
      const same = all ?? [point, point ^ 32];
      for (const each of same) more.push([each, each]);
    }
  }
  return union(...more);
}

const FOLDS: readonly (readonly number[])[] = [
  [0x73, 0x53, 0x17f],
  [0x6b, 0x4b, 0x212a],
];
