import { copyColumns, ColumnRuns, keep, scope, tensor, type Tensor } from "@astra-rl/torch";
import { idTensor } from "../../token-ids.js";
import type { Decoding } from "../decoding.js";
import type { KeyValueCache } from "../key-value-cache.js";
import { bucketOf } from "./buckets.js";
import type { DecodeGraphs } from "./decode-graphs.js";
import type { StaticStep, SteppedTokens, StepSettings } from "./static-step.js";

/** Where a generation is when its rows enter the buffers of a static step. */
export interface DecodingState {
  readonly rows: readonly Decoding[];
  /** Number of sampled tokens per row that went through the model. */
  readonly forwarded: number;
  readonly cache: KeyValueCache;
  /** int64 [n, 1]: the last sampled ids. */
  readonly next: Tensor;
}

/**
 * The rows of one generation in the buffers of static steps. Their keys and values are copied there from the cache of the
 * session, from bucket to bucket as rows end and texts grow, and back when rows leave.
 */
export class StaticDecoding {
  #step: StaticStep | null = null;
  #rows: readonly Decoding[] = [];
  /** Of each row, its row in the buffers of the step. */
  #places: readonly number[] = [];
  /** Tokens of the generation that were in the session's cache when the rows entered. */
  #entered = 0;

  constructor(
    private readonly graphs: DecodeGraphs,
    private readonly settings: StepSettings,
  ) {}

  /** Rows that a step computes; 0 outside. */
  get width(): number {
    return this.#step?.bucket.rows ?? 0;
  }

  /**
   * Makes sure that the rows are in a bucket with room for `more` steps.
   *
   * @returns false if none has so much; the rows are then where they were
   */
  fit(state: DecodingState, more: number): boolean {
    const { rows, forwarded } = state;
    const columns = rows.map((row) => columnsOf(row, forwarded) + (row.isFinished ? 0 : more));
    const bucket = bucketOf(rows.length, Math.max(...columns));
    if (bucket === null) return false;
    const before = this.#step;
    const isSame = before?.bucket.rows === bucket.rows && before.bucket.capacity === bucket.capacity;
    if (isSame && this.#places.every((place, at) => place === at)) return true;
    const step = isSame ? before : this.graphs.step(bucket, this.settings);
    if (before === null) {
      this.#enter(step, state);
      this.#entered = forwarded;
    } else scope(() => move(before, step, this.#places));
    this.#step = step;
    this.#rows = rows;
    this.#places = [...rows.keys()];
    return true;
  }

  /** See `StaticStep.run`. */
  run(...given: Parameters<StaticStep["run"]>): SteppedTokens {
    return this.#step!.run(...given);
  }

  /**
   * Keeps some of the rows, in their order; the others go back to the session's cache, which must have room for them.
   *
   * @param kept indices among the rows so far
   */
  shrink(kept: readonly number[], forwarded: number, cache: KeyValueCache): void {
    if (this.#step === null) return;
    const chosen = new Set(kept);
    this.#copyBack(
      [...this.#rows.keys()].filter((at) => !chosen.has(at)),
      forwarded,
      cache,
    );
    this.#rows = kept.map((at) => this.#rows[at]!);
    this.#places = kept.map((at) => this.#places[at]!);
  }

  /**
   * Takes all rows back to the session's cache, which must have room for them.
   *
   * @returns the last sampled ids and, with a repetition penalty, the ids of each row, which the caller owns; null if
   * no row was here
   */
  leave(forwarded: number, cache: KeyValueCache): { next: Tensor; seen: Tensor | null } | null {
    const step = this.#step;
    if (step === null) return null;
    this.#copyBack([...this.#rows.keys()], forwarded, cache);
    this.#step = null;
    return keep(
      scope(() => {
        const index = idTensor(this.#places, step.next.device);
        return { next: step.next.indexSelect(0, index), seen: step.seen && step.seen.indexSelect(0, index) };
      }),
    );
  }

  #enter(step: StaticStep, { rows, forwarded, cache, next }: DecodingState): void {
    const { keys, values } = step.cache.buffers;
    scope(() => {
      for (const buffer of [...keys, ...values]) buffer.zero_();
      const columns = rows.map(({ start }) => start + forwarded);
      for (const { first, at, slots, rectangle } of runsOf(rows, cache)) {
        const width = Math.max(...columns.slice(at, at + slots.length));
        const index = idTensor(
          slots.map((slot) => slot - first),
          next.device,
        );
        const isWhole = slots.length === rectangle.count;
        const copy = (to: Tensor, from: Tensor) => {
          const wide = from.narrow(2, 0, width);
          to.narrow(0, at, slots.length)
            .narrow(2, 0, width)
            .copy_(isWhole ? wide : wide.indexSelect(0, index));
        };
        keys.forEach((key, layer) => copy(key, rectangle.keys[layer]!));
        values.forEach((value, layer) => copy(value, rectangle.values[layer]!));
      }
      step.next.zero_();
      step.next.narrow(0, 0, rows.length).copy_(next);
      const padding = Array<number>(step.bucket.rows - rows.length).fill(0);
      step.positions.copy_(idTensor([...columns, ...padding], next.device).unsqueeze(1));
      if (step.seen === null) return;
      // By position, unlike those of `seenIds`: the last id is not yet read by the host.
      const width = step.bucket.capacity + 1;
      const seen = new Int32Array(step.bucket.rows * width);
      rows.forEach(({ row, ids }, at) => {
        const known = [...row.ids, ...ids];
        seen.fill(known[0]!, at * width, (at + 1) * width);
        seen.set(known, at * width);
      });
      step.seen.copy_(
        tensor(seen, { dtype: "int64", shape: [step.bucket.rows, width], device: next.device }),
      );
      step.seen.scatter_(1, step.positions, step.next);
    });
  }

  #copyBack(chosen: readonly number[], forwarded: number, cache: KeyValueCache): void {
    const { keys, values } = this.#step!.cache.buffers;
    const rows = chosen.map((at) => this.#rows[at]!);
    for (const { first, at, slots, rectangle } of runsOf(rows, cache)) {
      const runs = new ColumnRuns(
        slots.map((slot, index) => {
          const row = rows[at + index]!;
          const from = row.start + this.#entered;
          const count = Math.max(0, columnsOf(row, forwarded) - from);
          return [slot - first, from, this.#places[chosen[at + index]!]!, from, count];
        }),
      );
      try {
        rectangle.keys.forEach((key, layer) => copyColumns(key, keys[layer]!, runs));
        rectangle.values.forEach((value, layer) => copyColumns(value, values[layer]!, runs));
      } finally {
        runs.dispose();
      }
    }
  }
}

/** How many columns of a row are needed: of one that has ended, those that stay. */
const columnsOf = ({ row, start, isFinished }: Decoding, forwarded: number): number =>
  isFinished ? row.cached : start + forwarded;

/** Runs of rows that lie in one rectangle of the cache: `at` is the first one's index. */
function* runsOf(rows: readonly Decoding[], cache: KeyValueCache) {
  for (const rectangle of cache.rectangles) {
    const { first, count } = rectangle;
    const isInside = ({ row: { slot } }: Decoding) => slot >= first && slot < first + count;
    const at = rows.findIndex(isInside);
    if (at >= 0) yield { first, at, slots: rows.filter(isInside).map(({ row }) => row.slot), rectangle };
  }
}

/** Copies rows with all that belongs to them to the first rows of a step, which may be the same, or use the same buffers. */
function move(from: StaticStep, to: StaticStep, rows: readonly number[]): void {
  const padding = Array<number>(to.bucket.rows - rows.length).fill(0);
  const index = idTensor([...rows, ...padding], to.next.device);
  const taken = (given: Tensor) => given.indexSelect(0, index);
  const columns = Math.min(from.bucket.capacity, to.bucket.capacity);
  const copy = (target: Tensor, source: Tensor) =>
    scope(() => {
      const chosen = taken(source.narrow(2, 0, columns));
      if (columns < to.bucket.capacity) target.zero_();
      target.narrow(2, 0, columns).copy_(chosen);
    });
  const [own, other] = [to.cache.buffers, from.cache.buffers];
  own.keys.forEach((key, layer) => copy(key, other.keys[layer]!));
  own.values.forEach((value, layer) => copy(value, other.values[layer]!));
  to.next.copy_(taken(from.next));
  to.positions.copy_(taken(from.positions));
  if (to.seen === null || from.seen === null) return;
  const ids = taken(from.seen);
  to.seen.copy_(ids.narrow(1, 0, 1).expand([to.bucket.rows, to.bucket.capacity + 1]));
  to.seen.narrow(1, 0, columns + 1).copy_(ids.narrow(1, 0, columns + 1));
}
