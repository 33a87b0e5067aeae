import { describeValue, UsageError } from "@astra-rl/torch";

/** Something that holds cache memory and can give it up, at the price of reading its tokens again. */
export interface CacheHolder {
  /** Bytes held now. */
  readonly cacheBytes: number;
  evict(): void;
}

/**
 * A limit on the memory of key/value caches, shared by any number of sessions. Past it, the cache that was not used
 * for the longest time is given up: its tokens are read again if they are needed again. Nothing is ever refused: one
 * row that is larger than the whole budget still works.
 */
export class CacheBudget {
  readonly limit: number;
  /** In order of last use, the oldest first. */
  readonly #holders = new Set<CacheHolder>();

  /** @param limit bytes; Infinity = no limit */
  constructor(limit: number) {
    if (!(limit > 0)) {
      throw new UsageError(`cacheBudget: must be a number of bytes above 0, got ${describeValue(limit)}`);
    }
    this.limit = limit;
  }

  get used(): number {
    let sum = 0;
    for (const holder of this.#holders) sum += holder.cacheBytes;
    return sum;
  }

  /** The most that one batch should take: a batch and its children must fit side by side. */
  get batchLimit(): number {
    return this.limit / 2;
  }

  /** Marks a holder as used just now. */
  touch(holder: CacheHolder): void {
    this.#holders.delete(holder);
    this.#holders.add(holder);
  }

  release(holder: CacheHolder): void {
    this.#holders.delete(holder);
  }

  /**
   * Makes room for so many more bytes.
   *
   * @param pinned holders that are being worked on
   * @returns whether they fit now
   */
  makeRoom(bytes: number, pinned: readonly CacheHolder[]): boolean {
    if (this.limit === Infinity) return true;
    for (const holder of this.#holders) {
      if (this.used + bytes <= this.limit) return true;
      if (!pinned.includes(holder) && holder.cacheBytes > 0) holder.evict();
    }
    return this.used + bytes <= this.limit;
  }
}
