import { AstraError } from "@astra-rl/torch";
import type { EpisodeSeed } from "./draw.js";
import type { Graph } from "./graph.js";
import type { System } from "./system.js";

/** Draws of an evaluation rollout that starts from a given prompt. */
export interface EvalRolloutOptions {
  /** Default 0. */
  seed?: number;
  /** Episode of the first start; each further one takes the next number. Default 0. */
  episode?: number;
}

/** What a sampler must remember between two calls, as plain JSON. */
export type SamplerState = Record<string, string | number | boolean | null>;

/** Grows rollouts through a system. */
export abstract class Sampler<S = string, A = string> {
  constructor(readonly system: System<S, A>) {}

  /**
   * Grows one tree for training.
   *
   * @param start the episode; the same start gives the same graph while the tester is unchanged. Without it, the
   * sampler takes the next episode of its own sequence.
   */
  abstract rollout(start?: EpisodeSeed): Promise<Graph<S, A>>;

  /** `rollout` for several episodes. Batching must not change any of them. */
  async rolloutMany(starts: readonly EpisodeSeed[]): Promise<Graph<S, A>[]> {
    const graphs: Graph<S, A>[] = [];
    for (const start of starts) graphs.push(await this.rollout(start));
    return graphs;
  }

  /**
   * Grows one single path (width 1).
   *
   * @param start a prompt, or an episode whose draws also choose the prompt
   */
  abstract evalRollout(start?: EpisodeSeed | S, options?: EvalRolloutOptions): Promise<Graph<S, A>>;

  /** `evalRollout` for several starts; start i that is a prompt is episode `options.episode + i`. */
  async evalRolloutMany(
    starts: readonly (EpisodeSeed | S)[],
    { seed = 0, episode = 0 }: EvalRolloutOptions = {},
  ): Promise<Graph<S, A>[]> {
    const graphs: Graph<S, A>[] = [];
    for (const [i, start] of starts.entries())
      graphs.push(await this.evalRollout(start, { seed, episode: episode + i }));
    return graphs;
  }

  /** Reward of the last turn on the path of first children; 0 for a graph without turns, NaN where it failed. */
  finalReward(graph: Graph<S, A>): number {
    return graph.path().at(-1)?.reward ?? 0;
  }

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
