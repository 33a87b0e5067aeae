const INVALID = "\uFFFD";

/**
 * The text that each id adds to those before it. An id that holds only a part of a character adds nothing, and the one
 * that completes it adds the character. Decodes only the last ids each time.
 */
export class TextPieces {
  readonly #ids: number[] = [];
  /**
   * Ids before `#read` were emitted; those from `#from` on are decoded again, because decoding depends on preceding
   * ids.
   */
  #from = 0;
  #read = 0;

  /** @param decode the text of ids; `isFirst`: they are at the start of the text */
  constructor(readonly decode: (ids: readonly number[], isFirst: boolean) => string) {}

  /** Whether all text of the ids was emitted. */
  get isTold(): boolean {
    return this.#read === this.#ids.length;
  }

  push(id: number): string {
    this.#ids.push(id);
    return this.#told((text) => !text.endsWith(INVALID));
  }

  /** The remaining text when there are no more ids: parts of an incomplete character. */
  end(): string {
    return this.isTold ? "" : this.#told(() => true);
  }

  #told(isWhole: (text: string) => boolean): string {
    const isFirst = this.#from === 0;
    const before = this.#read === 0 ? "" : this.decode(this.#ids.slice(this.#from, this.#read), isFirst);
    const now = this.decode(this.#ids.slice(this.#from), isFirst);
    if (!isWhole(now)) return "";
    // Decoders may change earlier text when more ids follow: emitted text is kept.
    const piece = now.startsWith(before)
      ? now.slice(before.length)
      : this.decode(this.#ids.slice(this.#read), this.#read === 0);
    this.#from = this.#read;
    this.#read = this.#ids.length;
    return piece;
  }
}
