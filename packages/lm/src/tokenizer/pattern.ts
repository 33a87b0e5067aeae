import { TimeLimitError, withTimeLimit } from "../time-limit.js";
import { translateOniguruma } from "./oniguruma.js";

/** GPT-2's split pattern, shared by all tokenizers with its byte-level vocabulary. */
export const BYTE_LEVEL_PATTERN = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/** The split pattern of Qwen 2 and 3. */
export const QWEN2_PATTERN = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

/**
 * Patterns of widespread checkpoints, each verified to take time linear in the text: if an alternative fails after many
 * characters, the next one matches these at once. They need no time limit, which costs more than most matches.
 */
const LINEAR_PATTERNS: ReadonlySet<string> = new Set([
  BYTE_LEVEL_PATTERN,
  // Llama 3
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  QWEN2_PATTERN,
  // Mistral's tekken, GPT-4o
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  String.raw`\p{N}{1,3}`,
]);

/** Time limit in milliseconds: a constant, plus a share per character. Real patterns need a thousandth of it. */
const TIME = 1000;
const TIME_FOR_CHARACTER = 0.01;

/** A pattern of a tokenizer.json. It comes with a model and is not trusted, so its run time is limited. */
export class Pattern {
  readonly #expression: RegExp;
  readonly #isLinear: boolean;
  readonly #refuse: (why: string) => Error;

  /**
   * @param source in Oniguruma's syntax
   * @param refuse creates the error for a pattern that cannot be used, here or with a later text
   * @param isLinear whether matching takes linear time, so that no time limit is needed
   */
  constructor(source: string, refuse: (why: string) => Error, isLinear = LINEAR_PATTERNS.has(source)) {
    this.#refuse = refuse;
    this.#isLinear = isLinear;
    this.#expression = translateOniguruma(source, refuse);
  }

  /** A pattern that matches only this text. */
  static literal(text: string, refuse: (why: string) => Error): Pattern {
    return new Pattern(text.replace(/[\\^$.*+?()[\]{}|&-]/g, "\\$&"), refuse, true);
  }

  /** All matches in order: [start, end, start, end, …] in UTF-16 units. */
  matches(text: string): number[] {
    return this.matchesOfAll([text])[0]!;
  }

  /** `matches` of each text, with a single time limit for all. */
  matchesOfAll(texts: readonly string[]): number[][] {
    const find = () => texts.map((text) => findAll(this.#expression, text));
    try {
      if (this.#isLinear) return find();
      const length = texts.reduce((sum, text) => sum + text.length, 0);
      return withTimeLimit(TIME + TIME_FOR_CHARACTER * length, find);
    } catch (cause) {
      if (cause instanceof TimeLimitError) throw this.#refuse(`${cause.message} for this text`);
      // The regular expression engine uses stack for each character of a repetition: some four million fit.
      if (cause instanceof RangeError) throw this.#refuse("one of its matches is too long for the engine");
      throw cause;
    }
  }
}

function findAll(expression: RegExp, text: string): number[] {
  const found: number[] = [];
  for (const { index, 0: match } of text.matchAll(expression)) found.push(index, index + match.length);
  return found;
}
