import { decodeText, firstStop, type TokenDecoder } from "./stop.js";
import { TextPieces } from "./text-pieces.js";

export interface TextStreamOptions {
  /** As in `StopDetector`: where the text ends. Default false. */
  withinTokens?: boolean;
}

/**
 * Text of sampled ids as it grows, in pieces that are never taken back: incomplete characters, and text that is or may
 * become a stop string, are held back. Joined, the pieces are the text of the generation.
 */
export class TextStream {
  readonly #pieces: TextPieces;
  readonly #withinTokens: boolean;
  #text = "";
  #told = 0;
  /** Lengths of the text after each id that was not emitted, ascending. */
  #ends: number[] = [];

  constructor(
    tokenizer: TokenDecoder,
    readonly stops: readonly string[] = [],
    { withinTokens = false }: TextStreamOptions = {},
  ) {
    this.#pieces = new TextPieces((ids) => decodeText(tokenizer, ids));
    this.#withinTokens = withinTokens;
  }

  /** Whether all text of the ids was emitted. */
  get isTold(): boolean {
    return this.#pieces.isTold && this.#told === this.#text.length;
  }

  /** The text that one more id adds; possibly none yet. */
  push(id: number): string {
    this.#text += this.#pieces.push(id);
    if (!this.#pieces.isTold) return "";
    this.#ends.push(this.#text.length);
    return this.#tell(firstStop(this.#text, this.stops, this.#told) ?? this.#text.length - this.#mayBeStop());
  }

  /** The remaining part of the final text, which stop strings may have truncated. */
  end(text: string): string {
    const rest = text.slice(this.#told);
    this.#told = text.length;
    return rest;
  }

  #tell(until: number): string {
    // A token in which a stop string begins is cut off with it, unless texts end within tokens.
    const end = this.#withinTokens ? until : this.#ends.findLast((each) => each <= until);
    if (end === undefined) return "";
    this.#ends = this.#ends.filter((each) => each > end);
    const piece = this.#text.slice(this.#told, end);
    this.#told = end;
    return piece;
  }

  /** Length of the longest suffix of the unsent text with which a stop string may begin. */
  #mayBeStop(): number {
    let longest = 0;
    const held = this.#text.length - this.#told;
    for (const stop of this.stops) {
      for (let length = Math.min(stop.length, held); length > longest; length -= 1) {
        if (stop.startsWith(this.#text.slice(-length))) longest = length;
      }
    }
    return longest;
  }
}
