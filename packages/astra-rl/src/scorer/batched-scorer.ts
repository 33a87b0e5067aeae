import { UsageError } from "@astra-rl/torch";
import { checkCount, Scorer, type ScoreOutcome } from "../core/index.js";

export interface BatchedScorerOptions {
  /** Most texts in one call to the inner scorer. Default 64. */
  batchSize?: number;
  /** Most scores to remember between calls, the oldest forgotten first. Default 0: none. */
  cacheSize?: number;
}

/** Asks another scorer for each distinct text once, in batches of a limited size, shortest texts together. */
export class BatchedScorer extends Scorer {
  readonly name: string;
  override readonly labelNames: readonly string[];
  readonly #scorer: Scorer;
  readonly #batchSize: number;
  readonly #cacheSize: number;
  readonly #cache = new Map<string, ScoreOutcome>();

  constructor(scorer: Scorer, { batchSize = 64, cacheSize = 0 }: BatchedScorerOptions = {}) {
    super();
    if (!Number.isInteger(batchSize) || batchSize < 1) {
      throw new UsageError(`BatchedScorer: batchSize must be a whole number of at least 1, got ${batchSize}`);
    }
    if (!Number.isInteger(cacheSize) || cacheSize < 0) {
      throw new UsageError(`BatchedScorer: cacheSize must be a whole number of at least 0, got ${cacheSize}`);
    }
    this.name = scorer.name;
    this.labelNames = scorer.labelNames;
    this.#scorer = scorer;
    this.#batchSize = batchSize;
    this.#cacheSize = cacheSize;
  }

  override async score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    const found = new Map<string, ScoreOutcome>();
    for (const text of texts) {
      const known = this.#cache.get(text);
      if (known !== undefined) found.set(text, known);
    }
    // Texts of similar length share a batch, so that models pad little.
    const asked = [...new Set(texts)].filter((text) => !found.has(text)).sort((a, b) => a.length - b.length);
    for (let start = 0; start < asked.length; start += this.#batchSize) {
      const batch = asked.slice(start, start + this.#batchSize);
      const outcomes = await this.#scorer.score(batch);
      checkCount(`${this.name}.score`, outcomes, batch.length);
      for (const [index, text] of batch.entries()) {
        found.set(text, outcomes[index]!);
        this.#remember(text, outcomes[index]!);
      }
    }
    return texts.map((text) => found.get(text)!);
  }

  override dispose(): void {
    this.#cache.clear();
    this.#scorer.dispose();
  }

  #remember(text: string, outcome: ScoreOutcome): void {
    // A failure may be gone the next time.
    if (this.#cacheSize === 0 || outcome.failure) return;
    if (this.#cache.size >= this.#cacheSize) {
      const oldest = this.#cache.keys().next();
      if (!oldest.done) this.#cache.delete(oldest.value);
    }
    this.#cache.set(text, outcome);
  }
}
