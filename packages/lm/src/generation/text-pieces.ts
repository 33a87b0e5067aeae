const INVALID = "\uFFFD";

/**
 * What each id adds to the text of those before it. An id that holds only a part of a character adds nothing, and the one
 * that completes it adds the character. Decodes only the last ids each time.
 */
export class TextPieces {
  readonly #ids: number[] = [];
  /** Ids before `#read` were told; those from `#from` on are decoded again, because decoding depends on what is before. */
  #from = 0;
  #read = 0;

  /** @param decode the text of ids; `isFirst`: nothing precedes them */
  constructor(readonly decode: (ids: readonly number[], isFirst: boolean) => string) {}

  /** Whether everything that the ids say was told. */
  get isTold(): boolean {
    return this.#read === this.#ids.length;
  }

  push(id: number): string {
    this.#ids.push(id);
    return this.#told((text) => !text.endsWith(INVALID));
  }

  /** What is left when no more ids come: the parts of a character that was not completed. */
  end(): string {
    return this.isTold ? "" : this.#told(() => true);
  }

  #told(isWhole: (text: string) => boolean): string {
    const isFirst = this.#from === 0;
    const before = this.#read === 0 ? "" : this.decode(this.#ids.slice(this.#from, this.#read), isFirst);
    const now = this.decode(this.#ids.slice(this.#from), isFirst);
    if (!isWhole(now)) return "";
    // Decoders may write what came before otherwise once more follows: what was told stays.
    const piece = now.startsWith(before)
      ? now.slice(before.length)
      : this.decode(this.#ids.slice(this.#read), this.#read === 0);
    this.#from = this.#read;
    this.#read = this.#ids.length;
    return piece;
  }
}
