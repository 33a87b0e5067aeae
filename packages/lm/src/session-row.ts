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
 * goes through the model together with whatever is read next.
 */
export class SessionRow {
  ids: number[];
  /** Row of the cache that is this row's. */
  slot = 0;
  /** Ids that the model has ever read, from the first: reading one of them again is counted as such. */
  furthest = 0;
  /** Index of the first id that is pending and was sampled, not given; there is at most one, the last sampled. */
  sampledPending: number | null = null;
  #spans: Span[] = [];
  /** Oldest first; all its columns lie at the left, without holes. */
  #ancestors: Ancestor[] = [];

  constructor(ids: readonly number[]) {
    this.ids = [...ids];
  }

  /**
   * A row with the same past; its columns, if it has any, are moved together at the left.
   *
   * @param fork one object for all children that are made of this row at once
   */
  child(cached: boolean, fork: object): SessionRow {
    const row = new SessionRow(this.ids);
    row.furthest = this.furthest;
    row.sampledPending = this.sampledPending;
    if (cached && this.cached > 0) {
      row.#spans = [[0, this.cached]];
      row.#ancestors = [...this.#ancestors, { fork, columns: this.cached }];
    }
    return row;
  }

  get cached(): number {
    return this.#spans.reduce((sum, [start, end]) => sum + end - start, 0);
  }

  get pending(): number {
    return this.ids.length - this.cached;
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

  /** Takes the next pending ids for read, in neighbouring columns. */
  extend(start: number, count: number): void {
    if (count === 0) return;
    const last = this.#spans.at(-1);
    if (last !== undefined && last[1] === start) last[1] += count;
    else this.#spans.push([start, start + count]);
    const { cached } = this;
    this.furthest = Math.max(this.furthest, cached);
    if (this.sampledPending !== null && this.sampledPending < cached) this.sampledPending = null;
  }

  /** Forgets the columns of all but the first `count` cached ids. */
  rewind(count: number): void {
    let excess = this.cached - count;
    while (excess > 0) {
      const last = this.#spans.at(-1)!;
      const taken = Math.min(excess, last[1] - last[0]);
      last[1] -= taken;
      excess -= taken;
      if (last[0] === last[1]) this.#spans.pop();
    }
    this.#ancestors = this.#ancestors.map(({ fork, columns }) => {
      return { fork, columns: Math.min(columns, count) };
    });
  }

  /** Forgets all columns: everything is pending again. */
  evict(): void {
    this.#spans = [];
    this.#ancestors = [];
  }

  /** Drops ids from the left. Positions shift, so nothing that was cached remains true. */
  dropLeft(count: number): void {
    this.ids.splice(0, count);
    this.furthest = Math.max(0, this.furthest - count);
    if (this.sampledPending !== null) {
      this.sampledPending = this.sampledPending < count ? null : this.sampledPending - count;
    }
    this.evict();
  }
}
