/** A row from which this one took over its first columns. */
interface Ancestor {
  /** The same object in all rows that were made from it at once. */
  fork: object;
  columns: number;
}

/**
 * One text of a session: its token ids and how many of them are in the cache.
 *
 * The first `cached` ids have been read and lie in the columns of their numbers; the rest is pending: it goes through the
 * model together with whatever is read next. There is always at least one id.
 */
export class SessionRow {
  /** Row of the cache that is this row's; its batch numbers it. */
  slot = 0;
  #ids: number[];
  #pinned: number;
  /** Ids that the model has ever read, from the first: reading one of them again is counted as such. */
  #furthest = 0;
  /** Index of the first id that is pending and was sampled, not given; there is at most one, the last sampled. */
  #sampledPending: number | null = null;
  #cached = 0;
  /** Oldest first. */
  #ancestors: Ancestor[] = [];

  /** @param pinned so many leading ids stay when ids are dropped from the left; at most all that are given */
  constructor(ids: readonly number[], pinned = 0) {
    this.#ids = [...ids];
    this.#pinned = Math.min(pinned, ids.length);
  }

  /**
   * A row with the same past.
   *
   * @param fork one object for all children that are made of this row at once
   */
  child(cached: boolean, fork: object): SessionRow {
    const row = new SessionRow(this.#ids, this.#pinned);
    row.#furthest = this.#furthest;
    row.#sampledPending = this.#sampledPending;
    if (cached && this.cached > 0) {
      row.#cached = this.cached;
      row.#ancestors = [...this.#ancestors, { fork, columns: this.cached }];
    }
    return row;
  }

  get ids(): readonly number[] {
    return this.#ids;
  }

  /** So many leading ids are never dropped. */
  get pinned(): number {
    return this.#pinned;
  }

  get cached(): number {
    return this.#cached;
  }

  get pending(): number {
    return this.#ids.length - this.cached;
  }

  /** Where the first columns come from, oldest first; each ancestor's columns include those before. */
  get ancestors(): readonly Readonly<Ancestor>[] {
    return this.#ancestors;
  }

  /** What reading the next pending ids adds to the counters: given ids, and ids that had been read before. */
  costOf(count: number): { read: number; reread: number } {
    const { cached } = this;
    const sampled = this.#sampledPending !== null && this.#sampledPending < cached + count ? 1 : 0;
    return {
      read: count - sampled,
      reread: Math.min(count, Math.max(0, this.#furthest - cached)),
    };
  }

  /** Appends given ids, which are pending. */
  append(ids: readonly number[]): void {
    this.#ids.push(...ids);
  }

  /**
   * Appends sampled ids. Nothing may be pending before.
   *
   * @param forwarded how many of them went through the model
   * @param cached how many of these count as read: the rest is pending
   */
  say(ids: readonly number[], forwarded: number, cached: number): void {
    const before = this.#ids.length;
    this.#ids.push(...ids);
    this.extend(cached);
    this.#furthest = Math.max(this.#furthest, before + forwarded);
    this.#sampledPending = ids.length > forwarded ? this.#ids.length - 1 : null;
  }

  /**
   * Holds these ids from now on, at least one. What is cached of a common beginning stays so; but a row that ends earlier
   * than before leaves its last id pending, since the hidden state after it is not known any more.
   *
   * @param pinned so many leading ids are never dropped; at most all
   */
  rewrite(ids: readonly number[], pinned = this.#pinned): void {
    const limit = Math.min(ids.length, this.#ids.length);
    let common = 0;
    while (common < limit && ids[common] === this.#ids[common]) common += 1;
    this.rewind(ids.length < this.#ids.length ? Math.min(common, ids.length - 1) : common);
    this.#ids = [...ids];
    this.#pinned = Math.min(pinned, ids.length);
    this.#furthest = Math.min(this.#furthest, common);
    if (this.#sampledPending !== null && this.#sampledPending >= common) this.#sampledPending = null;
  }

  /** Takes the next pending ids for read. */
  extend(count: number): void {
    this.#cached += count;
    this.#furthest = Math.max(this.#furthest, this.#cached);
    if (this.#sampledPending !== null && this.#sampledPending < this.#cached) this.#sampledPending = null;
  }

  /** Forgets all but the first `count` cached ids, if there are more. */
  rewind(count: number): void {
    this.#cached = Math.min(this.#cached, count);
    this.#ancestors = this.#ancestors
      .map(({ fork, columns }) => ({ fork, columns: Math.min(columns, count) }))
      .filter(({ columns }) => columns > 0);
  }

  /** Forgets all columns: everything is pending again. */
  evict(): void {
    this.rewind(0);
  }

  /**
   * Drops ids behind the pinned ones. Positions shift, so of what was cached only the pinned ids remain true, and those
   * few are read again with the rest.
   */
  dropLeft(count: number): void {
    const pinned = this.#pinned;
    const shifted = (index: number) => (index < pinned ? index : Math.max(pinned, index - count));
    this.#ids.splice(pinned, count);
    this.#furthest = shifted(this.#furthest);
    if (this.#sampledPending !== null) {
      const wasDropped = this.#sampledPending >= pinned && this.#sampledPending < pinned + count;
      this.#sampledPending = wasDropped ? null : shifted(this.#sampledPending);
    }
    this.evict();
  }
}
