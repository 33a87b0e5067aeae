import type { CreditTable, Graph } from "../core/index.js";

export interface ExperienceBatch<Batch> {
  batch: Batch;
  /** Items in the batch; the last one of an epoch may be smaller than the others. */
  size: number;
  /** What the batch counts for in an accumulated gradient: see `Algorithm.weight`. */
  weight: number;
}

export interface ExperienceFields<S, A, Batch> {
  graphs: readonly Graph<S, A>[];
  credits: readonly CreditTable<S, A>[];
  /** Items in each epoch. */
  size: number;
  epochs: number;
  /** The batches of an epoch, counted from 0. */
  cut: (epoch: number) => readonly ExperienceBatch<Batch>[];
}

/**
 * What one round of rollouts gave: the graphs, their credit, and what the algorithm learns from them, in batches
 * of a drawn order. Iterating gives the batches of all epochs in order.
 */
export class Experience<S, A, Batch> implements Iterable<Batch> {
  readonly graphs: readonly Graph<S, A>[];
  /** Credit of each graph's nodes. */
  readonly credits: readonly CreditTable<S, A>[];
  /** Items in each epoch. */
  readonly size: number;
  readonly epochs: number;
  readonly #cut: (epoch: number) => readonly ExperienceBatch<Batch>[];
  #last: { epoch: number; batches: readonly ExperienceBatch<Batch>[] } | null = null;

  constructor({ graphs, credits, size, epochs, cut }: ExperienceFields<S, A, Batch>) {
    this.graphs = graphs;
    this.credits = credits;
    this.size = size;
    this.epochs = epochs;
    this.#cut = cut;
  }

  /** The batches of the first epoch. */
  get batches(): readonly ExperienceBatch<Batch>[] {
    return this.epoch(0);
  }

  /** The batches of an epoch, from 0. Only those of the epoch that was asked for last are kept. */
  epoch(index: number): readonly ExperienceBatch<Batch>[] {
    if (this.#last?.epoch !== index) this.#last = { epoch: index, batches: this.#cut(index) };
    return this.#last.batches;
  }

  *[Symbol.iterator](): Iterator<Batch> {
    for (let epoch = 0; epoch < this.epochs; epoch++) for (const { batch } of this.epoch(epoch)) yield batch;
  }
}
