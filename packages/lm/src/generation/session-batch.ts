import { keep, scope, zeros, type Tensor } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import { runsOf } from "../runs.js";
import { idTensor } from "../token-ids.js";
import { CacheView } from "./cache-view.js";
import { cacheBytes, cacheShape, KeyValueCache } from "./key-value-cache.js";
import { mostColumns, mostStates, statesOf } from "./pass.js";
import { sampledLogprobs } from "./sampling-filters.js";
import type { CacheBudget, CacheHolder } from "./session-budget.js";
import type { WorkCounts } from "./session-counters.js";
import type { SessionRow } from "./session-row.js";

/** Padding tokens in a pass above which a separate pass is cheaper. */
const MOST_PADDING = 128;

/** Ids to score while pending ids are processed, by the row's index in the session. */
export interface Scoring {
  /** Indices of the row's ids, ascending, all pending. */
  indices: readonly (readonly number[])[];
  /** Receives the ids' log-probabilities given all preceding ids, under the full distribution. */
  logprobs: number[][];
}

/** Options shared by the batches of a session. */
export interface BatchOptions {
  model: CausalLM;
  budget: CacheBudget;
  /** Maximum tokens, including padding, in one prefill pass. */
  tokenBudget: number;
  /** Minimum saving in bytes for which the cache is split by row length. */
  leastSaving: number;
  count(work: Partial<WorkCounts>): void;
}

/**
 * Rows that share one key/value cache and are prefilled and decoded together.
 *
 * It owns the cache and the rows' last hidden states, both outside every scope. Row `rows[i]` has slot i in both.
 */
export class RowBatch implements CacheHolder {
  readonly options: BatchOptions;
  #rows: readonly SessionRow[] = [];
  #cache: KeyValueCache | null = null;
  #last: Tensor | null = null;

  constructor(rows: readonly SessionRow[], options: BatchOptions) {
    this.options = options;
    this.#assignSlots(rows);
    options.budget.touch(this);
  }

  /** Row i has slot i. */
  get rows(): readonly SessionRow[] {
    return this.#rows;
  }

  /** null = evicted or nothing prefilled yet: every id of every row is pending. */
  get cache(): KeyValueCache | null {
    return this.#cache;
  }

  /**
   * Hidden state [rows, D] of each row's last cached id, which predicts the next one. A row's state is valid only while
   * the row has no pending ids.
   */
  get last(): Tensor | null {
    return this.#last;
  }

  get cacheBytes(): number {
    return this.#cache?.bytes ?? 0;
  }

  /** Cache size in bytes after prefilling every row's pending ids and `more` further tokens. */
  bytesWith(more: number): number {
    return rowBytes(this.#rows, more, this.options);
  }

  evict(): void {
    this.#cache?.dispose();
    this.#last?.dispose();
    this.#cache = null;
    this.#last = null;
    for (const row of this.#rows) row.rewind(0);
  }

  dispose(): void {
    this.evict();
    this.options.budget.release(this);
  }

  /**
   * Creates a batch of children of this one's rows. If the budget does not hold both caches, it starts without one.
   *
   * @param children in any order; several may have the same parent
   * @param room additional columns to reserve per row
   * @param options of the children's session
   * @param consume this batch is not used afterwards: its memory may be freed while it is copied
   */
  fork(children: readonly SessionRow[], room: number, options: BatchOptions, consume: boolean): RowBatch {
    const { budget, leastSaving } = options;
    const batch = new RowBatch(longestFirst(children), options);
    if (this.#cache === null || this.#last === null) return batch;
    if (!budget.makeRoom(rowBytes(children, room, options), [this])) return batch;
    for (const child of batch.rows) child.inherit();
    const slots = batch.rows.map(({ parent }) => parent!.slot);
    const lengths = batch.rows.map(({ cached }) => cached);
    const capacities = batch.rows.map(({ ids }) => ids.length + room);
    batch.#last = selected(this.#last, slots);
    batch.#cache = this.#cache.select(slots, lengths, capacities, leastSaving, { consume });
    return batch;
  }

  /** Reserves columns for every row's pending ids and `more` further tokens. Slots may change. */
  makeRoom(more: number): void {
    const { model, budget, leastSaving } = this.options;
    const capacities = this.#cache?.capacities();
    if (
      capacities !== undefined &&
      this.#rows.every(({ ids, slot }) => ids.length + more <= capacities[slot]!)
    )
      return;
    budget.makeRoom(Math.max(0, this.bytesWith(more) - this.cacheBytes), [this]);
    const order = longestFirst(this.#rows);
    const slots = order.map(({ slot }) => slot);
    const lengths = order.map(({ cached }) => cached);
    const needed = order.map(({ ids }) => ids.length + more);
    this.#cache =
      this.#cache?.select(slots, lengths, needed, leastSaving, { consume: true }) ??
      KeyValueCache.make(cacheShape(model), needed, leastSaving);
    this.#assignSlots(order);
    const last = this.#last;
    this.#last = last && selected(last, slots);
    last?.dispose();
  }

  /**
   * Prefills pending ids.
   *
   * @param chosen the rows to prefill; absent = all
   * @param scoring absent = nothing is scored
   * @param room additional columns to reserve
   */
  prefill({
    chosen,
    scoring,
    room = 0,
  }: { chosen?: ReadonlySet<SessionRow>; scoring?: Scoring; room?: number } = {}): void {
    const due = this.#rows.filter((row) => row.pending > 0 && chosen?.has(row) !== false);
    if (due.length === 0) return;
    this.options.budget.touch(this);
    this.makeRoom(room);
    for (const rows of this.#passes(due)) this.#run(rows, scoring);
  }

  /** Stores the hidden state [1, D] of a row's last cached id. */
  remember(row: SessionRow, state: Tensor): void {
    scope(() => void this.#last!.narrow(0, row.slot, 1).copy_(state));
  }

  /** Log-probability of one id after each row, under the full distribution; no row may have pending ids. */
  peek(rows: readonly SessionRow[], ids: readonly number[]): number[] {
    if (rows.length === 0) return [];
    return this.#score(
      this.#last!,
      rows.map(({ slot }) => slot),
      ids,
    );
  }

  #assignSlots(rows: readonly SessionRow[]): void {
    this.#rows = rows;
    rows.forEach((row, slot) => (row.slot = slot));
  }

  /**
   * Groups rows into forward passes, each ordered by slot: rows of similar pending length, within the token budget
   * including padding; at least one row per pass.
   */
  #passes(due: readonly SessionRow[]): SessionRow[][] {
    const passes = runsOf(
      [...due].sort((a, b) => b.pending - a.pending),
      (row, pass) => {
        const longest = pass[0].pending;
        const padding = [...pass, row].reduce((sum, { pending }) => sum + longest - pending, 0);
        return longest * (pass.length + 1) <= this.options.tokenBudget && padding <= MOST_PADDING;
      },
    );
    return passes.map((rows) => [...rows].sort((a, b) => a.slot - b.slot));
  }

  /** Runs the forward passes over all pending ids of some rows, ordered by slot. */
  #run(rows: readonly SessionRow[], scoring: Scoring | undefined): void {
    const { model, tokenBudget } = this.options;
    const starts = rows.map((row) => row.cached);
    const counts = rows.map((row) => row.pending);
    const longest = Math.max(...counts);
    this.#scoreFirst(rows, scoring);
    const budgeted = Math.max(1, Math.floor(tokenBudget / rows.length));
    const step = Math.min(longest, budgeted, mostColumns(model, rows));
    using view = new CacheView(
      this.#cache!,
      rows.map((row) => row.slot),
    );
    for (let from = 0; from < longest; from += step) {
      const width = Math.min(step, longest - from);
      const begins = starts.map((start, at) => start + Math.min(from, counts[at]!));
      const lengths = counts.map((count) => Math.max(0, Math.min(width, count - from)));
      // Tokens whose hidden state is needed, by their flat index: each row's last one, and those before a scored id.
      const ending: { slot: number; place: number }[] = [];
      const scored: { row: number; id: number; place: number }[] = [];
      rows.forEach((row, at) => {
        const first = starts[at]! + from;
        const place = (index: number) => at * width + index - first;
        const isInside = (index: number) => index >= first && index < first + width;
        if (isInside(row.ids.length - 1)) ending.push({ slot: row.slot, place: place(row.ids.length - 1) });
        for (const index of scoring?.indices[row.index] ?? []) {
          if (isInside(index - 1))
            scored.push({ row: row.index, id: row.ids[index]!, place: place(index - 1) });
        }
      });
      const places = [...new Set([...ending, ...scored].map(({ place }) => place))];
      const stateOf = new Map(places.map((place, index) => [place, index]));
      scope(() => {
        const pass = { starts: begins, counts: lengths, width };
        const states = statesOf(model, view, rows, pass, places);
        const { dtype, device } = states;
        this.#last ??= keep(zeros([this.#rows.length, states.size(-1)], { dtype, device }));
        if (ending.length > 0) {
          const slots = ending.map(({ slot }) => slot);
          const indices = ending.map(({ place }) => stateOf.get(place)!);
          this.#last.indexCopy_(0, idTensor(slots, device), states.indexSelect(0, idTensor(indices, device)));
        }
        const logprobs = this.#score(
          states,
          scored.map(({ place }) => stateOf.get(place)!),
          scored.map(({ id }) => id),
        );
        scored.forEach(({ row }, at) => scoring!.logprobs[row]!.push(logprobs[at]!));
      });
    }
    this.#countRead(rows, counts, longest);
    rows.forEach((row, at) => row.extend(counts[at]!));
  }

  /** Log-probabilities of scored ids that come first among the pending ones: predicted by the stored hidden state. */
  #scoreFirst(rows: readonly SessionRow[], scoring: Scoring | undefined): void {
    const early = rows.filter((row) => scoring?.indices[row.index]?.[0] === row.cached);
    const ids = early.map((row) => row.ids[row.cached]!);
    this.peek(early, ids).forEach((logprob, at) => scoring!.logprobs[early[at]!.index]!.push(logprob));
  }

  /** log P(ids[i]) under hidden state `states[sources[i]]`, in float32, in chunks of bounded size. */
  #score(states: Tensor, sources: readonly number[], ids: readonly number[]): number[] {
    const { model } = this.options;
    const part = mostStates(model);
    const logprobs: number[] = [];
    for (let from = 0; from < ids.length; from += part) {
      const values = scope(() => {
        const hidden = states.indexSelect(0, idTensor(sources.slice(from, from + part), states.device));
        const targets = idTensor(ids.slice(from, from + part), states.device).unsqueeze(1);
        return sampledLogprobs(model.logits(hidden), targets).toTypedArray();
      });
      for (const value of values) logprobs.push(Number(value));
    }
    return logprobs;
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

/** The rows of a batch's last hidden states at these slots; the caller owns them. */
function selected(last: Tensor, slots: readonly number[]): Tensor {
  return scope(() => keep(last.indexSelect(0, idTensor(slots, last.device))));
}

/** Sorts rows by length, so that rows of similar cache width are adjacent. */
function longestFirst<T extends { readonly ids: readonly number[] }>(rows: readonly T[]): T[] {
  return [...rows].sort((a, b) => b.ids.length - a.ids.length);
}

/** Cache size in bytes of such rows with all their ids and `more` further columns. */
export function rowBytes(
  rows: readonly SessionRow[],
  more: number,
  { model, leastSaving }: Pick<BatchOptions, "model" | "leastSaving">,
): number {
  const capacities = longestFirst(rows).map(({ ids }) => ids.length + more);
  return cacheBytes(cacheShape(model), capacities, leastSaving);
}

/** Splits rows into runs of similar length, each within the limit of a batch or a single row. */
export function withinBudget(
  rows: readonly SessionRow[],
  more: number,
  options: BatchOptions,
): (readonly SessionRow[])[] {
  const limit = options.budget.batchLimit;
  if (rows.length > 0 && rowBytes(rows, more, options) <= limit) return [rows];
  return runsOf(longestFirst(rows), (row, run) => rowBytes([...run, row], more, options) <= limit);
}
