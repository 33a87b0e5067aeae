/** The part of a tokenizer that generation needs. */
export interface TokenDecoder {
  decode(ids: readonly number[], options?: { skipSpecialTokens?: boolean }): string;
}

/** Text of sampled ids; special tokens show nothing. */
export function decodeUtterance(tokenizer: TokenDecoder, ids: readonly number[]): string {
  return ids.length === 0 ? "" : tokenizer.decode(ids, { skipSpecialTokens: true });
}

/** Where a stop string cut an utterance. */
export interface Cut {
  /** How many of the ids stay. */
  kept: number;
  /** The text of exactly those ids. */
  text: string;
}

/**
 * Finds stop strings across the borders of tokens.
 *
 * What stays is the longest run of whole tokens, from the first, whose text is a beginning of the text before the stop
 * string. So the ids kept always decode to the text returned, and they are ids that were really sampled. The price: a
 * token that holds the stop string's beginning and something before it goes as a whole, and the text then ends that
 * much earlier than the stop string itself.
 */
export class StopDetector {
  readonly #tokenizer: TokenDecoder;
  readonly #stops: readonly string[];
  /** UTF-16 units of the longest stop string. */
  readonly #longest: number;

  constructor(tokenizer: TokenDecoder, stops: readonly string[]) {
    this.#tokenizer = tokenizer;
    this.#stops = stops;
    this.#longest = stops.reduce((longest, stop) => Math.max(longest, stop.length), 0);
  }

  /** Tokens that a stop string can take back at most, unless some of them are without text. */
  get reach(): number {
    // At most three UTF-8 bytes for a UTF-16 unit, and no token of less than a byte; one more holds a partial token.
    return this.#stops.length === 0 ? 0 : 3 * this.#longest + 1;
  }

  /** The cut that the last of these ids brings about, or null. Ids before it must have been looked at before. */
  find(ids: readonly number[]): Cut | null {
    if (this.#stops.length === 0 || ids.length === 0 || !this.#mayEnd(ids)) return null;
    const text = decodeUtterance(this.#tokenizer, ids);
    let at = -1;
    for (const stop of this.#stops) {
      const found = text.indexOf(stop);
      if (found >= 0 && (at < 0 || found < at)) at = found;
    }
    if (at < 0) return null;
    for (let kept = ids.length - 1; kept > 0; kept -= 1) {
      const beginning = decodeUtterance(this.#tokenizer, ids.slice(0, kept));
      if (beginning.length <= at && text.startsWith(beginning)) return { kept, text: beginning };
    }
    return { kept: 0, text: "" };
  }

  /** Looks at the last tokens only, so that a long utterance is not decoded again for each of its tokens. */
  #mayEnd(ids: readonly number[]): boolean {
    let from = ids.length;
    let tail = "";
    // Decoders may trim the first token of what they are given, and it may be half a character: hence the slack.
    while (from > 0 && tail.length < this.#longest + 16) {
      from = Math.max(0, from - this.reach - 4);
      tail = decodeUtterance(this.#tokenizer, ids.slice(from));
    }
    return this.#stops.some((stop) => tail.includes(stop));
  }
}
