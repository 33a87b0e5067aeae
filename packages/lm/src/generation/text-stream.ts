import { decodeText, type TokenDecoder } from "./stop.js";

const INVALID = "\uFFFD";

/**
 * Text of sampled ids as it grows, in pieces that are never taken back: characters that are not complete yet, and what may
 * become a stop string, are held back. Joined, the pieces are the text of the generation.
 */
export class TextStream {
  readonly #ids: number[] = [];
  /** `#text` is the text of the first `#read` ids; those from `#from` on are decoded again, because decoding depends on what is before. */
  #from = 0;
  #read = 0;
  #text = "";
  #told = 0;
  /** Lengths of the text after each of the ids that were not told, ascending. */
  #ends: number[] = [];

  constructor(
    readonly tokenizer: TokenDecoder,
    readonly stops: readonly string[] = [],
  ) {}

  /** Whether everything that the ids say was told. */
  get isTold(): boolean {
    return this.#read === this.#ids.length && this.#told === this.#text.length;
  }

  /** What one more id adds; possibly nothing yet. */
  push(id: number): string {
    this.#ids.push(id);
    const before = decodeText(this.tokenizer, this.#ids.slice(this.#from, this.#read));
    const now = decodeText(this.tokenizer, this.#ids.slice(this.#from));
    if (now.endsWith(INVALID) || !now.startsWith(before)) return "";
    this.#text += now.slice(before.length);
    this.#from = this.#read;
    this.#read = this.#ids.length;
    this.#ends.push(this.#text.length);
    return this.#tell(this.#text.length - this.#mayBeStop());
  }

  /** What is left to tell of the final text, which stop strings may have shortened. */
  end(text: string): string {
    const rest = text.slice(this.#told);
    this.#told = text.length;
    return rest;
  }

  /** Whole tokens up to a place in the text: one in which a stop string begins is cut off with it. */
  #tell(until: number): string {
    const end = this.#ends.findLast((each) => each <= until);
    if (end === undefined) return "";
    this.#ends = this.#ends.filter((each) => each > end);
    const piece = this.#text.slice(this.#told, end);
    this.#told = end;
    return piece;
  }

  /** Length of the longest end of the text with which a stop string may begin. */
  #mayBeStop(): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let length = Math.min(stop.length, this.#text.length); length > longest; length -= 1) {
        if (stop.startsWith(this.#text.slice(-length))) longest = length;
      }
    }
    return longest;
  }
}
