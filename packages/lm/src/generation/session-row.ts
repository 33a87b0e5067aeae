import { commonLength } from "../token-ids.js";

/** A row from which another one inherited its first columns. */
interface Ancestor {
  row: SessionRow;
  columns: number;
}

/**
 * One text of a session: its token ids and how many of them are in the cache.
 *
 * The first `cached` ids are in the cache, id i in column i; the rest is pending until the next forward pass. There is
 * always at least one id.
 */
export class SessionRow {
  /** This row's row in the cache; assigned by its batch. */
  slot = 0;
  #ids: number[];
  #pinned: number;
  /** Number of leading ids that were ever processed: processing one of them again is counted as such. */
  #furthest = 0;
  /** Index of the pending id that was sampled, not given; at most one, the last sampled. */
  #sampledPending: number | null = null;
  #cached = 0;
  /** Oldest first. */
  #ancestors: Ancestor[] = [];

  /**
   * @param index position in the session
   * @param pinned number of leading ids that truncation keeps; at most all given ids
   * @param parent the row that it was forked from
   */
  constructor(
    ids: readonly number[],
    readonly index = 0,
    pinned = 0,
    readonly parent: SessionRow | null = null,
  ) {
    this.#ids = [...ids];
    this.#pinned = Math.min(pinned, ids.length);
  }

  /** A row with the same ids, none of them cached. */
  child(index: number): SessionRow {
    const row = new SessionRow(this.#ids, index, this.#pinned, this);
    row.#furthest = this.#furthest;
    row.#sampledPending = this.#sampledPending;
    return row;
  }

  /** Takes over the cached columns of its parent. */
  inherit(): void {
    const { cached } = this.parent!;
    this.#cached = cached;
    if (cached > 0) this.#ancestors = [...this.parent!.#ancestors, { row: this.parent!, columns: cached }];
  }

  get ids(): readonly number[] {
    return this.#ids;
  }

  /** Number of leading ids that are never dropped. */
  get pinned(): number {
    return this.#pinned;
  }

  get cached(): number {
    return this.#cached;
  }

  get pending(): number {
    return this.#ids.length - this.cached;
  }

  /** Ancestors of the first columns, oldest first; each ancestor's columns include those before. */
  get ancestors(): readonly Readonly<Ancestor>[] {
    return this.#ancestors;
  }

  /** Counter increments for processing the next pending ids: given ids, and ids processed before. */
  costOf(count: number): { read: number; reread: number } {
    const { cached } = this;
    const sampled = this.#sampledPending !== null && this.#sampledPending < cached + count ? 1 : 0;
    return {
      read: count - sampled,
      reread: Math.min(count, Math.max(0, this.#furthest - cached)),
    };
  }

  /** Appends given ids as pending. */
  append(ids: readonly number[]): void {
    this.#ids.push(...ids);
  }

  /**
   * Appends sampled ids. No ids may be pending.
   *
   * @param forwarded how many of them went through the model
   * @param cached how many of these count as cached; the rest is pending
   */
  appendSampled(ids: readonly number[], forwarded: number, cached: number): void {
    const before = this.#ids.length;
    this.#ids.push(...ids);
    this.extend(cached);
    this.#furthest = Math.max(this.#furthest, before + forwarded);
    this.#sampledPending = ids.length > forwarded ? this.#ids.length - 1 : null;
  }

  /**
   * Replaces the row's ids (at least one). The common prefix stays cached; but if the row becomes shorter, its last id
   * becomes pending, since the hidden state after it is no longer available.
   *
   * @param pinned number of leading ids that are never dropped; at most all
   */
  rewrite(ids: readonly number[], pinned = this.#pinned): void {
    const common = commonLength(ids, this.#ids);
    this.rewind(ids.length < this.#ids.length ? Math.min(common, ids.length - 1) : common);
    this.#ids = [...ids];
    this.#pinned = Math.min(pinned, ids.length);
    this.#furthest = Math.min(this.#furthest, common);
    if (this.#sampledPending !== null && this.#sampledPending >= common) this.#sampledPending = null;
  }

  /** Marks the next pending ids as cached. */
  extend(count: number): void {
    this.#cached += count;
    this.#furthest = Math.max(this.#furthest, this.#cached);
    if (this.#sampledPending !== null && this.#sampledPending < this.#cached) this.#sampledPending = null;
  }

  /** Discards all but the first `count` cached columns, if there are more; the other ids are pending again. */
  rewind(count: number): void {
    this.#cached = Math.min(this.#cached, count);
    this.#ancestors = this.#ancestors
      .map(({ row, columns }) => ({ row, columns: Math.min(columns, count) }))
      .filter(({ columns }) => columns > 0);
  }

  /**
   * Drops ids after the pinned ones. Positions shift, so only the pinned ids' cached values would remain valid; these
   * few are prefilled again with the rest.
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
    this.rewind(0);
  }
}
