/** Columns from `start` up to but without `end`. */
type Span = [start: number, end: number];

/** A row from which this one took over its first columns. */
interface Ancestor {
  /** The same object in all rows that were made from it at once. */
  fork: object;
  columns: number;
}

/**
 * One text of a session: its token ids and which cache columns hold them.
 *
 * The first `cached` ids have been read and lie, in order, in the columns of the row's spans; the rest is pending: it
 * goes through the model together with whatever is read next. There is always at least one id.
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
  #spans: Span[] = [];
  /** Oldest first; all its columns lie at the left, without holes. */
  #ancestors: Ancestor[] = [];

  /** @param pinned so many leading ids stay when ids are dropped from the left; at most all that are given */
  constructor(ids: readonly number[], pinned = 0) {
    this.#ids = [...ids];
    this.#pinned = Math.min(pinned, ids.length);
  }

  /**
   * A row with the same past; its columns, if it has any, are moved together at the left.
   *
   * @param fork one object for all children that are made of this row at once
   */
  child(cached: boolean, fork: object): SessionRow {
    const row = new SessionRow(this.#ids, this.#pinned);
    row.#furthest = this.#furthest;
    row.#sampledPending = this.#sampledPending;
    if (cached && this.cached > 0) {
      row.#spans = [[0, this.cached]];
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
    return this.#spans.reduce((sum, [start, end]) => sum + end - start, 0);
  }

  get pending(): number {
    return this.#ids.length - this.cached;
  }

  /** Column after the last one in use. */
  get lastColumn(): number {
    return this.#spans.at(-1)?.[1] ?? 0;
  }

  /** Columns of the cached ids, in order. */
  columns(): number[] {
    return this.#spans.flatMap(([start, end]) => Array.from({ length: end - start }, (_, at) => start + at));
  }

  /** Where the first columns come from, oldest first; each ancestor's columns include those before. */
  get ancestors(): readonly Readonly<Ancestor>[] {
    return this.#ancestors;
  }

  /** Marks this row's columns with 1 in one row of a validity mask. */
  mark(mask: Uint8Array, offset: number): void {
    for (const [start, end] of this.#spans) mask.fill(1, offset + start, offset + end);
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
   * @param start column of the first
   * @param forwarded how many of them went through the model
   * @param cached how many of these count as read: the rest is pending
   */
  say(ids: readonly number[], start: number, forwarded: number, cached: number): void {
    const before = this.#ids.length;
    this.#ids.push(...ids);
    this.extend(start, cached);
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

  /** Takes the next pending ids for read, in neighbouring columns. */
  extend(start: number, count: number): void {
    if (count === 0) return;
    const last = this.#spans.at(-1);
    if (last !== undefined && last[1] === start) last[1] += count;
    else this.#spans.push([start, start + count]);
    const { cached } = this;
    this.#furthest = Math.max(this.#furthest, cached);
    if (this.#sampledPending !== null && this.#sampledPending < cached) this.#sampledPending = null;
  }

  /** Forgets the columns of all but the first `count` cached ids, if there are more. */
  rewind(count: number): void {
    let excess = this.cached - count;
    while (excess > 0) {
      const last = this.#spans.at(-1)!;
      const taken = Math.min(excess, last[1] - last[0]);
      last[1] -= taken;
      excess -= taken;
      if (last[0] === last[1]) this.#spans.pop();
    }
    this.#ancestors = this.#ancestors
      .map(({ fork, columns }) => ({ fork, columns: Math.min(columns, count) }))
      .filter(({ columns }) => columns > 0);
  }

  /** Forgets all columns: everything is pending again. */
  evict(): void {
    this.#spans = [];
    this.#ancestors = [];
  }

  /**
   * Drops ids behind the pinned ones. Positions shift, so of what was cached only the pinned ids remain true, and those
   * few are read again with the rest: keeping them would leave holes as wide as the window.
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
