import { arange, cat, keep, scope, tensor, zeros, type Tensor } from "@astra-rl/torch";
import type { CausalLM, ForwardOptions } from "../causal-lm.js";
import { bytesPerColumn, cacheBytes, KeyValueCache } from "./key-value-cache.js";
import { idTensor, sampledLogprobs } from "./sampling-filters.js";
import type { CacheBudget, CacheHolder } from "./session-budget.js";
import type { WorkCounts } from "./session-counters.js";
import type { SessionRow } from "./session-row.js";

/** Most attention scores (rows · heads · new tokens · columns) that one forward pass makes in a layer. */
const SCORE_LIMIT = 2 ** 25;
/** Most logits that are made at once where log-probabilities are read off. */
const LOGIT_LIMIT = 2 ** 24;

/** Indices of ids whose log-probabilities are wanted, ascending, by row. */
export type Scored = ReadonlyMap<SessionRow, readonly number[]>;

/** What the batches of a session share. */
export interface BatchOptions {
  model: CausalLM;
  budget: CacheBudget;
  /** Most tokens, padding included, in one forward pass over given text. */
  tokenBudget: number;
  count(work: Partial<WorkCounts>): void;
}

/**
 * Rows that share one key/value cache and are read and decoded together.
 *
 * It owns the cache and the rows' last hidden states, both outside every scope. Row `rows[i]` has slot i in both.
 */
export class RowBatch implements CacheHolder {
  readonly options: BatchOptions;
  #rows: readonly SessionRow[];
  #cache: KeyValueCache | null = null;
  #last: Tensor | null = null;
  readonly #columnBytes: number;

  constructor(rows: readonly SessionRow[], options: BatchOptions) {
    this.#rows = rows;
    this.options = options;
    this.#columnBytes = bytesPerColumn(options.model.config, options.model.computeDtype);
    this.#number();
    options.budget.touch(this);
  }

  /** Row i has slot i. */
  get rows(): readonly SessionRow[] {
    return this.#rows;
  }

  /** null = evicted or nothing read yet: every id of every row is pending. */
  get cache(): KeyValueCache | null {
    return this.#cache;
  }

  /**
   * Hidden state [rows, D] after each row's last cached id, the one that predicts what follows. It speaks for a row
   * only while nothing of that row is pending.
   */
  get last(): Tensor | null {
    return this.#last;
  }

  get cacheBytes(): number {
    return this.#cache?.bytes ?? 0;
  }

  /** Columns that the cache would hold if every row's pending ids were read and so many more followed. */
  columnsWith(more: number): number {
    return this.#rows.reduce(
      (most, row) =>
        Math.max(most, (row.cached === 0 ? 0 : (this.#cache?.columns ?? 0)) + row.pending + more),
      0,
    );
  }

  /** Bytes that the cache would take with so many columns. */
  bytesWith(columns: number): number {
    return cacheBytes(this.#rows.length, columns, this.#columnBytes);
  }

  evict(): void {
    this.#cache?.dispose();
    this.#last?.dispose();
    this.#cache = null;
    this.#last = null;
    for (const row of this.#rows) row.evict();
  }

  dispose(): void {
    this.evict();
    this.options.budget.release(this);
  }

  /**
   * A batch whose rows continue rows of this one, which may repeat; evicted where the budget does not hold both.
   *
   * @param room columns to make room for
   * @param options of the session that the children belong to
   * @param consume this batch will not be used any more: its memory may go as it is taken over
   */
  children(parents: readonly SessionRow[], room: number, options: BatchOptions, consume: boolean): RowBatch {
    const { budget } = options;
    const columns = parents.map((row) => row.columns());
    const longest = columns.reduce((most, list) => Math.max(most, list.length), 0);
    const bytes = cacheBytes(parents.length, longest + room, this.#columnBytes);
    const cached = this.#cache !== null && this.#last !== null && budget.makeRoom(bytes, [this]);
    const forks = new Map(parents.map((row) => [row, {}]));
    const batch = new RowBatch(
      parents.map((row) => row.child(cached, forks.get(row)!)),
      options,
    );
    if (cached) {
      const slots = parents.map((row) => row.slot);
      batch.#last = scope(() => keep(this.#last!.indexSelect(0, idTensor(slots, this.#last!.device))));
      batch.#cache = this.#cache!.select(slots, columns, { capacity: longest + room, consume });
    }
    return batch;
  }

  /** Gives the rows a new order; cache and hidden states follow. */
  arrange(order: readonly SessionRow[]): void {
    const moved = order.filter((row, slot) => row.slot !== slot);
    const from = moved.map((row) => row.slot);
    this.#rows = [...order];
    this.#number();
    const to = moved.map((row) => row.slot);
    if (moved.length === 0 || this.#cache === null) return;
    this.#cache.move(to, from);
    scope(() => {
      const last = this.#last;
      if (last === null) return;
      last.indexCopy_(0, idTensor(to, last.device), last.indexSelect(0, idTensor(from, last.device)));
    });
  }

  /** Moves columns together where more of them are holes than is worth carrying along. */
  tidy(): void {
    if (this.#cache === null) return;
    const longest = this.#rows.reduce((most, row) => Math.max(most, row.cached), 0);
    const { columns } = this.#cache;
    if (columns - longest <= Math.max(64, longest / 2)) return;
    const lists = this.#rows.map((row) => row.columns());
    if (!this.options.budget.makeRoom(this.bytesWith(longest), [this])) return;
    const packed = this.#cache.select(
      this.#rows.map((row) => row.slot),
      lists,
      { consume: true },
    );
    this.#cache = packed;
    this.#rows.forEach((row, at) => {
      row.evict();
      row.extend(0, lists[at]!.length);
    });
  }

  /**
   * Reads what is pending.
   *
   * @param chosen the rows to read; absent = all
   * @param scored by row: where in it the ids lie that need their log-probability; ascending, all of them pending
   * @param room columns that will be needed soon
   * @returns by row: log P of those ids given everything before them, under the full distribution
   */
  catchUp(chosen?: ReadonlySet<SessionRow>, scored?: Scored, room = 0): Map<SessionRow, number[]> {
    const results = new Map<SessionRow, number[]>();
    const due = this.#rows.filter((row) => row.pending > 0 && (chosen === undefined || chosen.has(row)));
    if (due.length === 0) return results;
    const { model, budget } = this.options;
    budget.touch(this);
    this.tidy();
    const columns = Math.max(...due.map((row) => row.pending + (row.cached > 0 ? this.#cache!.columns : 0)));
    budget.makeRoom(Math.max(0, this.bytesWith(columns) - this.cacheBytes), [this]);
    const fresh = due.filter((row) => row.cached === 0).sort((a, b) => b.pending - a.pending);
    if (this.#cache === null) {
      this.#cache = KeyValueCache.forModel(model, this.#rows.length, columns + room);
      // Nothing is in the slots yet, so rows of like length may as well be neighbours.
      const rest = this.#rows.filter((row) => !fresh.includes(row));
      this.#rows = [...fresh, ...rest];
      this.#number();
      for (const [first, end] of this.#ranges(0, fresh.length)) this.#read(first, end, scored, results);
    } else {
      const extending = due.filter((row) => row.cached > 0);
      if (extending.length > 0) {
        const idle = this.#rows.filter((row) => !extending.includes(row));
        if (idle.length > extending.length / 3) this.arrange([...extending, ...idle]);
        const slots = extending.map((row) => row.slot);
        for (const [first, end] of this.#ranges(Math.min(...slots), Math.max(...slots) + 1)) {
          this.#read(first, end, scored, results, new Set(extending));
        }
      }
      this.#readApart(fresh, scored, results);
    }
    this.settleColumns();
    return results;
  }

  /** The cache holds as many columns as the row that reaches furthest. */
  settleColumns(): void {
    this.#cache?.setColumns(this.#rows.reduce((most, row) => Math.max(most, row.lastColumn), 0));
  }

  /** Takes in the hidden state [1, D] after a row's last cached id. */
  remember(row: SessionRow, state: Tensor): void {
    scope(() => void this.#last!.narrow(0, row.slot, 1).copy_(state));
  }

  /** Log P of one id after each row, under the full distribution; no row may have pending ids. */
  peek(rows: readonly SessionRow[], ids: readonly number[]): number[] {
    if (rows.length === 0) return [];
    return scope(() => {
      const last = this.#last;
      const slots = idTensor(
        rows.map((row) => row.slot),
        last!.device,
      );
      return this.#score(last!, slots, ids);
    });
  }

  #number(): void {
    this.#rows.forEach((row, slot) => (row.slot = slot));
  }

  /** Splits slots into runs whose padded tokens stay within the token budget, a row at least. */
  #ranges(from: number, to: number): [first: number, end: number][] {
    const ranges: [number, number][] = [];
    let first = from;
    let longest = 0;
    for (let slot = from; slot < to; slot += 1) {
      longest = Math.max(longest, this.#rows[slot]!.pending);
      if (slot > first && longest * (slot + 1 - first) > this.options.tokenBudget) {
        ranges.push([first, slot]);
        first = slot;
        longest = this.#rows[slot]!.pending;
      }
    }
    ranges.push([first, to]);
    return ranges;
  }

  /** Reads the pending ids of neighbouring slots, right behind the columns that the cache holds. */
  #read(
    first: number,
    end: number,
    scored: Scored | undefined,
    results: Map<SessionRow, number[]>,
    only?: ReadonlySet<SessionRow>,
  ): void {
    const rows = this.#rows.slice(first, end);
    const counts = rows.map((row) => (only === undefined || only.has(row) ? row.pending : 0));
    if (counts.every((count) => count === 0)) return;
    const { columns } = this.#cache!;
    this.#run(this.#cache!.slice(first, end - first), rows, counts, scored, results);
    rows.forEach((row, at) => row.extend(columns, counts[at]!));
  }

  /** Reads rows of which nothing is cached in a cache of their own, and moves the result into their slots. */
  #readApart(
    fresh: readonly SessionRow[],
    scored: Scored | undefined,
    results: Map<SessionRow, number[]>,
  ): void {
    let rest = fresh;
    while (rest.length > 0) {
      const longest = rest[0]!.pending;
      const rows = rest.slice(0, Math.max(1, Math.floor(this.options.tokenBudget / longest)));
      rest = rest.slice(rows.length);
      const apart = KeyValueCache.forModel(this.options.model, rows.length, longest);
      try {
        const counts = rows.map((row) => row.pending);
        this.#run(apart, rows, counts, scored, results);
        this.#cache!.place(
          rows.map((row) => row.slot),
          apart,
        );
        rows.forEach((row, at) => row.extend(0, counts[at]!));
      } finally {
        apart.dispose();
      }
    }
  }

  /** The forward passes over the next `counts[i]` pending ids of each row; `cache` holds exactly these rows. */
  #run(
    cache: KeyValueCache,
    rows: readonly SessionRow[],
    counts: readonly number[],
    scored: Scored | undefined,
    results: Map<SessionRow, number[]>,
  ): void {
    const { model, tokenBudget } = this.options;
    const before = cache.columns;
    const starts = rows.map((row) => row.cached);
    const longest = Math.max(...counts);
    for (const row of rows) if (scored?.has(row)) results.set(row, []);
    this.#scoreFirst(rows, scored, results);
    const perPass = Math.min(
      Math.floor(tokenBudget / rows.length),
      Math.floor(SCORE_LIMIT / (rows.length * model.config.heads * (before + longest))),
    );
    const step = Math.max(1, Math.min(longest, perPass));
    for (let from = 0; from < longest; from += step) {
      const width = Math.min(step, longest - from);
      scope(() => {
        const { ids, options } = this.#inputs(cache, rows, starts, counts, from, width);
        const hidden = model.forward(ids, options);
        const states = hidden.reshape([rows.length * width, hidden.size(-1)]);
        this.#last ??= keep(
          zeros([this.#rows.length, hidden.size(-1)], { dtype: hidden.dtype, device: hidden.device }),
        );
        const ending = rows.flatMap((row, at) => {
          const column = counts[at]! - 1 - from;
          return column >= 0 && column < width ? [{ slot: row.slot, state: at * width + column }] : [];
        });
        if (ending.length > 0) {
          const slots = idTensor(
            ending.map(({ slot }) => slot),
            states.device,
          );
          const sources = idTensor(
            ending.map(({ state }) => state),
            states.device,
          );
          this.#last.indexCopy_(0, slots, states.indexSelect(0, sources));
        }
        this.#scoreRest(states, rows, starts, from, width, scored, results);
      });
    }
    this.#countRead(rows, counts, longest);
  }

  /** Log-probabilities of scored ids that nothing pending precedes: their predictor was read earlier. */
  #scoreFirst(
    rows: readonly SessionRow[],
    scored: Scored | undefined,
    results: Map<SessionRow, number[]>,
  ): void {
    const early = rows.filter((row) => scored?.get(row)?.[0] === row.cached);
    const ids = early.map((row) => row.ids[row.cached]!);
    this.peek(early, ids).forEach((logprob, at) => results.get(early[at]!)!.push(logprob));
  }

  /** Log-probabilities of the scored ids that are predicted in columns `from` … `from + width` − 1 of the new ones. */
  #scoreRest(
    states: Tensor,
    rows: readonly SessionRow[],
    starts: readonly number[],
    from: number,
    width: number,
    scored: Scored | undefined,
    results: Map<SessionRow, number[]>,
  ): void {
    const wanted: { row: SessionRow; state: number; id: number }[] = [];
    rows.forEach((row, at) => {
      for (const index of scored?.get(row) ?? []) {
        const column = index - starts[at]! - 1;
        if (column < from || column >= from + width) continue;
        wanted.push({ row, state: at * width + column - from, id: row.ids[index]! });
      }
    });
    if (wanted.length === 0) return;
    const sources = idTensor(
      wanted.map(({ state }) => state),
      states.device,
    );
    const ids = wanted.map(({ id }) => id);
    this.#score(states, sources, ids).forEach((logprob, at) => results.get(wanted[at]!.row)!.push(logprob));
  }

  /** log P(ids[i]) under hidden state `states[sources[i]]`, the vocabulary in float32, a bounded part at a time. */
  #score(states: Tensor, sources: Tensor, ids: readonly number[]): number[] {
    const { model } = this.options;
    const part = Math.max(1, Math.floor(LOGIT_LIMIT / model.config.vocabSize));
    const logprobs: number[] = [];
    for (let from = 0; from < ids.length; from += part) {
      const count = Math.min(part, ids.length - from);
      const values = scope(() => {
        const hidden = states.indexSelect(0, sources.narrow(0, from, count));
        const targets = idTensor(ids.slice(from, from + count), states.device).view([count, 1]);
        return sampledLogprobs(model.logits(hidden), targets).toTypedArray();
      });
      for (const value of values) logprobs.push(Number(value));
    }
    return logprobs;
  }

  /** Ids, positions and mask of one forward pass: `width` columns of new tokens, padded at the right. */
  #inputs(
    cache: KeyValueCache,
    rows: readonly SessionRow[],
    starts: readonly number[],
    counts: readonly number[],
    from: number,
    width: number,
  ): { ids: Tensor; options: ForwardOptions } {
    const { model } = this.options;
    const { device, config } = model;
    const batch = rows.length;
    const held = cache.columns;
    const ids = new Int32Array(batch * width);
    const positions = new Int32Array(batch * width);
    rows.forEach((row, at) => {
      for (let column = 0; column < width; column += 1) {
        const index = starts[at]! + from + column;
        const real = from + column < counts[at]!;
        ids[at * width + column] = real ? row.ids[index]! : 0;
        // Padding stands on a position that exists; nothing ever looks at it.
        positions[at * width + column] = real ? index : 0;
      }
    });
    const options: ForwardOptions = {
      positions: tensor(positions, { dtype: "int64", shape: [batch, width], device }),
      mask: held === 0 ? null : this.#mask(rows, held, from, width),
      cache,
    };
    if (config.slidingWindow !== null && held + width > config.slidingWindow) {
      options.keyPositions = this.#keyPositions(rows, starts, held + width, held - from);
    }
    return { ids: tensor(ids, { dtype: "int64", shape: [batch, width], device }), options };
  }

  /**
   * bool [B, 1, T, held + T]: the row's own columns and, among the new ones, itself and those before it. New columns
   * of earlier passes (the last `from` held ones) hold padding only for rows that have nothing left to read.
   */
  #mask(rows: readonly SessionRow[], held: number, from: number, width: number): Tensor {
    const { device } = this.options.model;
    const batch = rows.length;
    const valid = new Uint8Array(batch * held);
    rows.forEach((row, at) => {
      row.mark(valid, at * held);
      valid.fill(1, (at + 1) * held - from, (at + 1) * held);
    });
    const order = arange(0, width, 1, { dtype: "int64", device });
    const causal = order.unsqueeze(1).ge(order.unsqueeze(0)); // [T, T]
    return cat(
      [
        tensor(valid, { dtype: "bool", shape: [batch, 1, 1, held], device }).expand([batch, 1, width, held]),
        causal.view([1, 1, width, width]).expand([batch, 1, width, width]),
      ],
      3,
    );
  }

  /** int64 [B, S]: the position in its text of every column's token; columns from `firstNew` on continue the text. */
  #keyPositions(
    rows: readonly SessionRow[],
    starts: readonly number[],
    columns: number,
    firstNew: number,
  ): Tensor {
    const positions = new Int32Array(rows.length * columns);
    rows.forEach((row, at) => {
      row.columns().forEach((column, position) => (positions[at * columns + column] = position));
      for (let column = firstNew; column < columns; column += 1) {
        positions[at * columns + column] = starts[at]! + column - firstNew;
      }
    });
    const { device } = this.options.model;
    return tensor(positions, { dtype: "int64", shape: [rows.length, columns], device });
  }

  #countRead(rows: readonly SessionRow[], counts: readonly number[], longest: number): void {
    let [read, reread, forwarded] = [0, 0, 0];
    rows.forEach((row, at) => {
      const cost = row.costOf(counts[at]!);
      read += cost.read;
      reread += cost.reread;
      forwarded += counts[at]!;
    });
    this.options.count({
      tokensRead: read,
      tokensReread: reread,
      tokensForwarded: forwarded,
      tokensPadded: rows.length * longest - forwarded,
    });
  }
}
