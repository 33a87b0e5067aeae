import type { Graph } from "../core/index.js";

export interface ExperienceBatch<Batch> {
  batch: Batch;
  /** Items in the batch; the last one of an experience may be smaller than the others. */
  size: number;
}

/** What one round of rollouts gave: the graphs, and what the algorithm learns from them, in shuffled batches. */
export class Experience<S, A, Batch> implements Iterable<Batch> {
  constructor(
    readonly graphs: readonly Graph<S, A>[],
    readonly batches: readonly ExperienceBatch<Batch>[],
  ) {}

  /** Items in all batches together. */
  get size(): number {
    return this.batches.reduce((sum, { size }) => sum + size, 0);
  }

  *[Symbol.iterator](): Iterator<Batch> {
    for (const { batch } of this.batches) yield batch;
  }
}
