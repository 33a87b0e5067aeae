import { UsageError } from "@astra-rl/torch";
import type { Algorithm, EpisodeSeed, Sampler, StepResult } from "../core/index.js";
import { Experience } from "./experience.js";
import { shuffle } from "./shuffle.js";
import { requireWhole } from "./training-configuration.js";

export interface HarnessOptions {
  /** Graphs grown for one experience. @default 32 */
  numEpisodesPerExperience?: number;
  /** Items in one batch. @default 16 */
  batchSize?: number;
  /** Names the episodes' draws and the order of items. @default 0 */
  seed?: number;
}

/** Where the harness stands in its sequence of episodes, as plain JSON. */
export interface HarnessState {
  seed: number;
  /** Number of the next episode. */
  nextEpisode: number;
  /** Number of the next experience. */
  nextExperience: number;
}

/**
 * Collects experience and feeds batches to the algorithm; for training loops of one's own.
 *
 * @example
 * const harness = new Harness(sampler, new DPO(system), { numEpisodesPerExperience: 8, batchSize: 4 });
 * const optimizer = new AdamW(system.parameters(), { learningRate: 1e-5 });
 * for (let step = 0; step < 100; step++) {
 *   for (const batch of await harness.experience()) {
 *     const { loss } = await harness.step(batch);
 *     loss.backward();
 *     optimizer.step();
 *     optimizer.zeroGrad();
 *     loss.dispose();
 *     await system.testerUpdated();
 *   }
 * }
 */
export class Harness<S = string, A = string, Step = unknown, Batch = unknown> {
  readonly numEpisodesPerExperience: number;
  readonly batchSize: number;
  readonly seed: number;
  #nextEpisode = 0;
  #nextExperience = 0;

  /** @throws UsageError for options out of range, or a sampler that the algorithm cannot learn from */
  constructor(
    readonly sampler: Sampler<S, A>,
    readonly algorithm: Algorithm<S, A, Step, Batch>,
    { numEpisodesPerExperience = 32, batchSize = 16, seed = 0 }: HarnessOptions = {},
  ) {
    if (algorithm.system !== sampler.system) {
      throw new UsageError(
        "Harness: the sampler and the algorithm must share one system, got two different ones",
      );
    }
    algorithm.checkSampler(sampler);
    this.numEpisodesPerExperience = requireWhole("numEpisodesPerExperience", numEpisodesPerExperience, 1);
    this.batchSize = requireWhole("batchSize", batchSize, 1);
    this.seed = requireWhole("seed", seed, 0);
  }

  /** Grows the next episodes with the tester as it is, and cuts what they teach into shuffled batches. */
  async experience(): Promise<Experience<S, A, Batch>> {
    const starts = Array.from({ length: this.numEpisodesPerExperience }, (_, i): EpisodeSeed => {
      return { seed: this.seed, episode: this.#nextEpisode + i };
    });
    const graphs = await this.sampler.rolloutMany(starts);
    const key = { seed: this.seed, stream: "shuffle", episode: this.#nextExperience, node: 0 };
    const steps = shuffle(
      graphs.flatMap((graph) => this.algorithm.flatten(graph)),
      key,
    );
    // Only now: an experience that failed half-way is collected again with the same draws.
    this.#nextEpisode += starts.length;
    this.#nextExperience += 1;
    const batches = [];
    for (let start = 0; start < steps.length; start += this.batchSize) {
      const part = steps.slice(start, start + this.batchSize);
      batches.push({ batch: this.algorithm.collate(part), size: part.length });
    }
    return new Experience(graphs, batches);
  }

  /** Loss of a batch, with a gradient into the tester, and its logs. The caller owns the loss. */
  async step(batch: Batch): Promise<StepResult> {
    return this.algorithm.step(batch);
  }

  getState(): HarnessState {
    return { seed: this.seed, nextEpisode: this.#nextEpisode, nextExperience: this.#nextExperience };
  }

  /** @throws UsageError for the state of a harness with another seed */
  setState({ seed, nextEpisode, nextExperience }: HarnessState): void {
    if (seed !== this.seed) {
      throw new UsageError(`Harness: the state belongs to seed ${seed}, this run has seed ${this.seed}`);
    }
    this.#nextEpisode = requireWhole("nextEpisode", nextEpisode, 0);
    this.#nextExperience = requireWhole("nextExperience", nextExperience, 0);
  }
}
