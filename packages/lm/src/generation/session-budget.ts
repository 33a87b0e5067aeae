import { describeValue, UsageError } from "@astra-rl/base";

/** Holds cache memory that can be evicted, at the cost of prefilling its tokens again. */
export interface CacheHolder {
  /** Bytes held now. */
  readonly cacheBytes: number;
  evict(): void;
}

/**
 * A memory limit for key/value caches, shared by any number of sessions. Above it, the least recently used cache is
 * evicted; its tokens are prefilled again when needed. Nothing is ever refused: a single row larger than the whole
 * budget still works.
 */
export class CacheBudget {
  readonly limit: number;
  /** Least recently used first. */
  readonly #holders = new Set<CacheHolder>();

  /** @param limit bytes; Infinity = no limit */
  constructor(limit: number) {
    if (!(limit > 0)) {
      throw new UsageError(
        "out-of-range",
        `cacheBudget: must be a number of bytes above 0, got ${describeValue(limit)}`,
      );
    }
    this.limit = limit;
  }

  get used(): number {
    let sum = 0;
    for (const holder of this.#holders) sum += holder.cacheBytes;
    return sum;
  }

  /** Memory limit of one batch: a batch and its children must fit together. */
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
   * Evicts caches until `bytes` more fit.
   *
   * @param pinned holders in use, which are not evicted
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
