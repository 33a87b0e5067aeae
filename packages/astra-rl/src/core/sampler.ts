import type { Conversation, Message } from "@astra-rl/lm";
import { AstraError, UsageError } from "@astra-rl/torch";
import { drawingFrom, isEpisodeSeed, type EpisodeSeed, type Purpose } from "./draw.js";
import type { Graph } from "./graph.js";
import type { Json } from "./state.js";
import type { PromptOf, System } from "./system.js";
import { overrides, refuseTwins } from "./twins.js";

/** Draws of an evaluation rollout that starts from a given prompt. */
export interface EvalRolloutOptions {
  /** Default 0. */
  seed?: number;
  /** Episode of the first start; each further one takes the next number. Default 0. */
  episode?: number;
}

/** What a sampler must remember between two calls, as plain JSON. */
export type SamplerState = { readonly [key: string]: Json };

/**
 * Grows rollouts through a system.
 *
 * Implement `grow`, which makes all the trees of a call, and `growEvaluation`, its single paths; or, where batching is
 * no concern, `rollout` and `evalRollout`, which make one. Everything else rests on either, so what is overridden counts
 * however a sampler is called.
 */
export abstract class Sampler<S = Conversation, A = Message> {
  constructor(readonly system: System<S, A>) {
    refuseTwins(this, "rollout", "rolloutMany", "grow");
    refuseTwins(this, "evalRollout", "evalRolloutMany", "growEvaluation");
  }

  /**
   * Grows one tree for training.
   *
   * @param start the episode; the same start gives the same graph while the tester is unchanged. Without it, the
   * sampler takes the next episode of its own sequence.
   */
  async rollout(start: EpisodeSeed = this.nextEpisode()): Promise<Graph<S, A>> {
    const isOverridden = overrides(this, Sampler.prototype, "rolloutMany");
    const [graph] = isOverridden ? await this.rolloutMany([start]) : await this.grow([start]);
    return graph!;
  }

  /** `rollout` for several episodes. Batching must not change any of them. */
  async rolloutMany(starts: readonly EpisodeSeed[]): Promise<Graph<S, A>[]> {
    if (!overrides(this, Sampler.prototype, "rollout")) return this.grow(starts);
    const graphs: Graph<S, A>[] = [];
    for (const start of starts) graphs.push(await this.#alone(start, "train", () => this.rollout(start)));
    return graphs;
  }

  /**
   * Grows one single path (width 1).
   *
   * @param start a prompt, or an episode whose draws also choose the prompt
   */
  async evalRollout(
    start: EpisodeSeed | PromptOf<S> = this.nextEpisode(),
    options: EvalRolloutOptions = {},
  ): Promise<Graph<S, A>> {
    const isOverridden = overrides(this, Sampler.prototype, "evalRolloutMany");
    const [graph] = isOverridden
      ? await this.evalRolloutMany([start], options)
      : await this.growEvaluation([start], options);
    return graph!;
  }

  /** `evalRollout` for several starts; start i that is a prompt is episode `options.episode + i`. */
  async evalRolloutMany(
    starts: readonly (EpisodeSeed | PromptOf<S>)[],
    options: EvalRolloutOptions = {},
  ): Promise<Graph<S, A>[]> {
    if (!overrides(this, Sampler.prototype, "evalRollout")) return this.growEvaluation(starts, options);
    const { seed = 0, episode = 0 } = options;
    const graphs: Graph<S, A>[] = [];
    for (const [i, start] of starts.entries()) {
      const own = { seed, episode: episode + i };
      const named = isEpisodeSeed(start) ? start : own;
      graphs.push(await this.#alone(named, "evaluate", () => this.evalRollout(start, own)));
    }
    return graphs;
  }

  /** One rollout of a subclass's own making: what it asks without keys draws from the episode. */
  async #alone(
    start: EpisodeSeed,
    purpose: Purpose,
    rollout: () => Promise<Graph<S, A>>,
  ): Promise<Graph<S, A>> {
    try {
      return await drawingFrom(start, purpose, rollout);
    } finally {
      this.system.release();
    }
  }

  /** The next episode of the sampler's own sequence. */
  nextEpisode(): EpisodeSeed {
    throw new UsageError(
      `${this.constructor.name}: this sampler has no sequence of episodes of its own; say which one to grow`,
    );
  }

  /** The training trees of these episodes, grown together. */
  protected grow(_starts: readonly EpisodeSeed[]): Promise<Graph<S, A>[]> {
    throw new UsageError(`${this.constructor.name}: a sampler must implement grow, or rollout`);
  }

  /** The single paths of these starts, grown together. */
  protected growEvaluation(
    _starts: readonly (EpisodeSeed | PromptOf<S>)[],
    _options: EvalRolloutOptions,
  ): Promise<Graph<S, A>[]> {
    throw new UsageError(`${this.constructor.name}: a sampler must implement growEvaluation, or evalRollout`);
  }

  /** Reward of the last turn on the path of first children; 0 for a graph without turns, NaN where it failed. */
  finalReward(graph: Graph<S, A>): number {
    return graph.path().at(-1)?.reward ?? 0;
  }

  /**
   * Told of finished training graphs in episode order, once for each experience: for samplers that remember what was
   * found. What it remembers belongs into `getState`.
   */
  async observe(_graphs: readonly Graph<S, A>[]): Promise<void> {}

  /** The cursor of the sampler's own sequence of episodes; `{}` for a sampler that has none. */
  getState(): SamplerState {
    return {};
  }

  /** Continues where `getState` was called. */
  setState(state: SamplerState): void {
    const keys = Object.keys(state);
    if (keys.length > 0)
      throw new AstraError(`Sampler.setState: this sampler keeps no state, got ${keys.join(", ")}`);
  }
}
