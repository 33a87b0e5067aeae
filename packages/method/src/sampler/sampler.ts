import type { Conversation, Message } from "@astra-rl/lm";
import { AstraError, UsageError, parseOptions, requireList, type Json } from "@astra-rl/base";
import { z } from "zod";
import { drawingFrom } from "../tree/draw.js";
import {
  isEpisodeSeed,
  Node,
  overrides,
  type EpisodeSeed,
  type Purpose,
  type Graph,
  type NodeFields,
} from "../tree/index.js";
import type { PromptOf, System } from "../system/index.js";
import { refuseTwins } from "../tree/overrides.js";

/** Has no defaults here: subclasses that grow rollouts set them. */
const evalRolloutOptions = z.strictObject({
  /** Default 0. */
  seed: z.int().optional(),
  /** Episode of the first start; further starts count up. Default 0. */
  episode: z.int().optional(),
});
/** Seed and episode of an evaluation rollout that starts from a given prompt. */
export type EvalRolloutOptions = z.input<typeof evalRolloutOptions>;

/** A sampler's state between calls, as plain JSON. */
export type SamplerState = { readonly [key: string]: Json };

/**
 * Grows rollouts through a system.
 *
 * Implement `grow`, which grows all trees of a call, and `growEvaluation`, which grows its single paths; or, without
 * batching, `rollout` and `evalRollout`, which grow one. All other methods call these, so an override always takes
 * effect. `rollout` alone is enough: evaluations then follow the first children of its trees.
 */
export abstract class Sampler<S = Conversation, A = Message> {
  constructor(readonly system: System<S, A>) {
    refuseTwins(this, "rollout", "rolloutMany", "grow");
    refuseTwins(this, "evalRollout", "evalRolloutMany", "growEvaluation");
    this.#drawOverrides();
  }

  /**
   * An override that is called directly also takes its draws from its start: calls without keys inside it belong
   * to that episode.
   */
  #drawOverrides(): void {
    for (const name of ["rollout", "rolloutMany", "evalRollout", "evalRolloutMany"] as const) {
      if (!overrides(this, Sampler.prototype, name)) continue;
      type Method = (start: unknown, options?: EvalRolloutOptions) => Promise<unknown>;
      const method = (this as unknown as Record<typeof name, Method>)[name];
      const value = async (given: unknown, options?: EvalRolloutOptions): Promise<unknown> => {
        const isMany = name.endsWith("Many");
        if (isMany) requireList(`${this.constructor.name}.${name}`, "starts", given);
        const start = given === undefined ? this.#ownNext() : given;
        const starts = isMany ? (start as readonly unknown[]) : start === undefined ? [] : [start];
        const episodes = starts.map((each) => episodeOf(each, options));
        const purpose = name.startsWith("eval") ? "evaluate" : "train";
        return this.#drawing(episodes, purpose, () => method.call(this, start, options));
      };
      Object.defineProperty(this, name, { value, writable: true, configurable: true });
    }
  }

  /** Undefined for a sampler without its own sequence: an override may have another default. */
  #ownNext(): EpisodeSeed | undefined {
    return overrides(this, Sampler.prototype, "nextEpisode") ? this.nextEpisode() : undefined;
  }

  /**
   * Grows one tree for training.
   *
   * @param start the episode; the same start gives the same graph while the tester is unchanged. Without it, the
   * sampler takes the next episode of its own sequence.
   */
  async rollout(start: EpisodeSeed = this.nextEpisode()): Promise<Graph<S, A>> {
    const isOverridden = overrides(this, Sampler.prototype, "rolloutMany");
    const [graph] = isOverridden
      ? await this.rolloutMany([start])
      : await this.#drawing([start], "train", () => this.grow([start]));
    return graph!;
  }

  /** `rollout` for several episodes. Batching must not change any of them. */
  async rolloutMany(starts: readonly EpisodeSeed[]): Promise<Graph<S, A>[]> {
    requireList(`${this.constructor.name}.rolloutMany`, "starts", starts);
    if (!overrides(this, Sampler.prototype, "rollout")) {
      return this.#drawing(starts, "train", () => this.grow(starts));
    }
    return this.#oneByOne(starts, "train");
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
    parseOptions(`${this.constructor.name}.evalRollout`, evalRolloutOptions, options);
    const isOverridden = overrides(this, Sampler.prototype, "evalRolloutMany");
    const [graph] = isOverridden
      ? await this.evalRolloutMany([start], options)
      : await this.#evaluating([start], options);
    return graph!;
  }

  /** `evalRollout` for several starts; start i that is a prompt is episode `options.episode + i`. */
  async evalRolloutMany(
    starts: readonly (EpisodeSeed | PromptOf<S>)[],
    options: EvalRolloutOptions = {},
  ): Promise<Graph<S, A>[]> {
    const where = `${this.constructor.name}.evalRolloutMany`;
    parseOptions(where, evalRolloutOptions, options);
    requireList(where, "starts", starts);
    if (!overrides(this, Sampler.prototype, "evalRollout")) return this.#evaluating(starts, options);
    const { seed = 0, episode = 0 } = options;
    const graphs: Graph<S, A>[] = [];
    for (const [i, start] of starts.entries()) {
      const own = { seed, episode: episode + i };
      graphs.push(
        await this.#drawing([episodeOf(start, own)], "evaluate", () => this.evalRollout(start, own)),
      );
    }
    return graphs;
  }

  #evaluating(
    starts: readonly (EpisodeSeed | PromptOf<S>)[],
    options: EvalRolloutOptions,
  ): Promise<Graph<S, A>[]> {
    const episodes = starts.map((start) => episodeOf(start, options));
    return this.#drawing(episodes, "evaluate", () => this.growEvaluation(starts, options));
  }

  async #oneByOne(starts: readonly EpisodeSeed[], purpose: Purpose): Promise<Graph<S, A>[]> {
    const graphs: Graph<S, A>[] = [];
    for (const start of starts) {
      graphs.push(await this.#drawing([start], purpose, () => this.rollout(start)));
    }
    return graphs;
  }

  /** Calls without keys use the episodes' draws, and model caches live for one rollout. */
  async #drawing<T>(starts: readonly EpisodeSeed[], purpose: Purpose, rollout: () => Promise<T>): Promise<T> {
    try {
      return await drawingFrom(starts, purpose, rollout);
    } finally {
      this.system.release();
    }
  }

  /** The next episode of the sampler's own sequence. */
  nextEpisode(): EpisodeSeed {
    throw new UsageError(
      "episode-required",
      `${this.constructor.name}: this sampler has no sequence of episodes; specify the episode`,
    );
  }

  /** Grows the training trees of these episodes as one batch. */
  protected grow(_starts: readonly EpisodeSeed[]): Promise<Graph<S, A>[]> {
    throw new UsageError(
      "not-implemented",
      `${this.constructor.name}: a sampler must implement grow, or rollout`,
    );
  }

  /**
   * Grows the single paths of these starts as one batch. The default rolls out as in training and keeps the path of
   * first children; it accepts episodes only.
   */
  protected async growEvaluation(
    starts: readonly (EpisodeSeed | PromptOf<S>)[],
    _options: EvalRolloutOptions,
  ): Promise<Graph<S, A>[]> {
    const name = this.constructor.name;
    if (!overrides(this, Sampler.prototype, "rollout", "rolloutMany", "grow")) {
      throw new UsageError(
        "not-implemented",
        `${name}: a sampler must implement growEvaluation, evalRollout or rollout`,
      );
    }
    const episodes = starts.filter((start) => isEpisodeSeed(start));
    if (episodes.length < starts.length) throw new UsageError("episodes-only", `${name}: ${EPISODES_ONLY}`);
    const isAlone = overrides(this, Sampler.prototype, "rollout");
    const graphs = isAlone ? await this.#oneByOne(episodes, "evaluate") : await this.rolloutMany(episodes);
    for (const graph of graphs) keepFirstPath(graph);
    return graphs;
  }

  /** Whether evaluations may start from given prompts; false for the default of `growEvaluation`. */
  get startsFromPrompts(): boolean {
    return overrides(this, Sampler.prototype, "evalRollout", "evalRolloutMany", "growEvaluation");
  }

  /**
   * Final reward of a rollout: that of the last turn on the path of first children; 0 for a graph without turns, NaN
   * where that turn failed. `HFASTTrainer` selects the best tester by the mean over the dev prompts.
   */
  finalReward(graph: Graph<S, A>): number {
    return graph.path().at(-1)?.reward ?? 0;
  }

  /** Creates the node of a graph that grew in another process of the run. Default: a plain Node. */
  nodeFrom(fields: NodeFields<S, A>): Node<S, A> {
    return new Node(fields);
  }

  /**
   * Called once per experience with the finished training graphs in episode order, for samplers that remember earlier
   * findings. State kept here must be part of `getState`.
   */
  async observe(_graphs: readonly Graph<S, A>[]): Promise<void> {}

  /** The position in the sampler's sequence of episodes; `{}` for a sampler without state. */
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

/** Why a sampler without `growEvaluation` refuses prompts. */
export const EPISODES_ONLY =
  "does not implement evalRollout, so it chooses its own starts: evaluate it from episodes (numbers, or " +
  "{ seed, episode }; null for those of the seed), or implement evalRollout, which receives the prompt";

/** The episode of an evaluation: a start that is a prompt has that of the options. */
function episodeOf(start: unknown, { seed = 0, episode = 0 }: EvalRolloutOptions = {}): EpisodeSeed {
  return isEpisodeSeed(start) ? start : { seed, episode };
}

function keepFirstPath<S, A>(graph: Graph<S, A>): void {
  let level: { children: Graph<S, A>["children"] } = graph;
  while (level.children.length > 0) {
    level.children = level.children.slice(0, 1);
    level = level.children[0]!;
  }
}
