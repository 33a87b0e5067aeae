/** The part of a tokenizer that generation needs. */
export interface TokenDecoder {
  decode(ids: readonly number[], options?: { skipSpecialTokens?: boolean }): string;
}

/** Text of sampled ids, without special tokens. */
export function decodeText(tokenizer: TokenDecoder, ids: readonly number[]): string {
  return ids.length === 0 ? "" : tokenizer.decode(ids, { skipSpecialTokens: true });
}

/** Why a generation ended: an end id, a stop id or stop string, or maxNewTokens. */
export type FinishReason = "eos" | "stop" | "length";

/** Why each id that ends a generation does so. */
export const endsOf = (
  stopIds: readonly number[],
  endIds: readonly number[],
): ReadonlyMap<number, FinishReason> =>
  new Map([...stopIds.map((id) => [id, "stop"] as const), ...endIds.map((id) => [id, "eos"] as const)]);

/** Where a stop string truncates a generation. */
export interface Cut {
  /** How many of the ids stay. */
  kept: number;
  text: string;
}

/**
 * Finds stop strings across token boundaries, and truncates before the first one.
 *
 * By default keeps the longest prefix of whole tokens whose text is a prefix of the text before the stop string. So the
 * kept ids always decode to the returned text and are ids that were sampled, as training needs it. The cost: a token that
 * contains the start of the stop string and text before it is dropped entirely, so that the text ends before the stop
 * string's position.
 */
export class StopDetector {
  readonly #tokenizer: TokenDecoder;
  readonly #stops: readonly string[];
  readonly #withinTokens: boolean;
  /** Length of the longest stop string in UTF-16 units. */
  readonly #longest: number;

  /**
   * @param options.withinTokens the text ends exactly where the stop string begins, as clients of a server expect it;
   * the kept ids are those whose text begins before it, so the text of the last one may extend beyond. Default false.
   */
  constructor(
    tokenizer: TokenDecoder,
    stops: readonly string[],
    { withinTokens = false }: { withinTokens?: boolean } = {},
  ) {
    this.#tokenizer = tokenizer;
    this.#stops = stops;
    this.#withinTokens = withinTokens;
    this.#longest = stops.reduce((longest, stop) => Math.max(longest, stop.length), 0);
  }

  /** Maximum number of tokens that a stop string can remove, not counting tokens without text. */
  get reach(): number {
    // A UTF-16 unit takes at most three UTF-8 bytes, and a token is at least one byte; plus one for a partial token.
    return this.#stops.length === 0 ? 0 : 3 * this.#longest + 1;
  }

  /** The cut caused by the last of these ids, or null. Earlier ids must have been checked before. */
  find(ids: readonly number[]): Cut | null {
    if (this.#stops.length === 0 || ids.length === 0 || !this.#mayEnd(ids)) return null;
    const text = decodeText(this.#tokenizer, ids);
    const at = firstStop(text, this.#stops);
    if (at === null) return null;
    const whole = this.#wholeTokens(ids, text, at);
    if (!this.#withinTokens || whole.text.length === at) return whole;
    const before = text.slice(0, at);
    let { kept } = whole;
    while (!decodeText(this.#tokenizer, ids.slice(0, kept)).startsWith(before)) kept += 1;
    return { kept, text: before };
  }

  #wholeTokens(ids: readonly number[], text: string, at: number): Cut {
    for (let kept = ids.length - 1; kept > 0; kept -= 1) {
      const beginning = decodeText(this.#tokenizer, ids.slice(0, kept));
      if (beginning.length <= at && text.startsWith(beginning)) return { kept, text: beginning };
    }
    return { kept: 0, text: "" };
  }

  /** Decodes only the last tokens, so that checking does not become quadratic in the length of the generation. */
  #mayEnd(ids: readonly number[]): boolean {
    let from = ids.length;
    let tail = "";
    // Decoders may trim the first token, which may also be an incomplete character: hence the margin.
    while (from > 0 && tail.length < this.#longest + 16) {
      from = Math.max(0, from - this.reach - 4);
      tail = decodeText(this.#tokenizer, ids.slice(from));
    }
    return this.#stops.some((stop) => tail.includes(stop));
  }
}

/** Position of the first of these strings in a text, from a position on; null if none occurs. */
export function firstStop(text: string, stops: readonly string[], from = 0): number | null {
  const found = stops.map((stop) => text.indexOf(stop, from)).filter((at) => at >= 0);
  return found.length === 0 ? null : Math.min(...found);
}
