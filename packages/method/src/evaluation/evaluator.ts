import type { Conversation, Message } from "@astra-rl/lm";
import { UsageError, functionOption, parseOptions, requireList } from "@astra-rl/base";
import type { GoalRecord } from "@astra-rl/records";
import { z } from "zod";
import {
  isEpisodeSeed,
  checkJudged,
  nextTurn,
  overrides,
  type EpisodeSeed,
  type Graph,
} from "../tree/index.js";
import { EPISODES_ONLY, growInShares, type Sampler } from "../sampler/index.js";
import type { PromptOf } from "../system/index.js";
import { refuseTwins } from "../tree/overrides.js";

export type Metric = number | string | boolean | null;
export type Metrics = Record<string, Metric>;

/** Metrics of one rollout. */
export interface GraphMetrics {
  /** Over the whole rollout. */
  overall: Metrics;
  /** One entry for each turn, in order. */
  perTurn: Metrics[];
  /** What the rollout was to elicit; absent without a goal. */
  goal?: GoalRecord;
}

const evaluateOptions = z.strictObject({
  /** @default 0 */
  seed: z.int().default(0),
  /** Episode of the first start; further starts count up. @default 0 */
  episode: z.int().default(0),
  /** Number of starts to use; default all. Required when the evaluator was given no starts. */
  rollouts: z.int().min(0).optional(),
  /** Rollouts grown together. Default all. */
  batchSize: z.int().min(1).optional(),
  /** Called with the graphs of each batch. */
  onGraphs: functionOption<(graphs: readonly Graph[]) => void>().optional(),
  /** Called after each batch with the number of finished rollouts. */
  onProgress: functionOption<(done: number, total: number) => void>().optional(),
});
export type EvaluateOptions = z.input<typeof evaluateOptions>;

/**
 * Single-path rollouts → metrics per turn, per rollout, overall.
 *
 * Implement `measure`, which measures many rollouts at once, or `computeMetrics`, which measures one; and
 * `aggregateMetrics`.
 *
 * @typeParam Report result of `aggregateMetrics`
 */
export abstract class Evaluator<S = Conversation, A = Message, Report = unknown> {
  /**
   * @param starts prompts or episodes; null lets `evaluate({ rollouts })` use the episodes of its seed
   */
  constructor(
    readonly sampler: Sampler<S, A>,
    readonly starts: readonly (EpisodeSeed | PromptOf<S>)[] | null = null,
  ) {
    refuseTwins(this, "computeMetrics", "computeMetricsMany", "measure");
    if (starts === null) return;
    requireList(this.constructor.name, "starts", starts);
    const { startsFromPrompts = true } = sampler as Partial<Sampler<S, A>>;
    if (!startsFromPrompts && !starts.every(isEpisodeSeed)) {
      throw new UsageError(
        "episodes-only",
        `${this.constructor.name}: the sampler ${sampler.constructor.name} ${EPISODES_ONLY}`,
      );
    }
  }

  /** Rolls out, measures and aggregates. */
  async evaluate(options: EvaluateOptions = {}): Promise<Report> {
    const parsed = parseOptions("Evaluator.evaluate", evaluateOptions, options);
    const { seed, episode, rollouts, onGraphs, onProgress } = parsed;
    const starts = this.#starts(rollouts, { seed, episode });
    const batchSize = parsed.batchSize ?? Math.max(1, starts.length);
    const metrics: GraphMetrics[] = [];
    for (let done = 0; done < starts.length; done += batchSize) {
      const batch = starts.slice(done, done + batchSize);
      const { graphs, about } = await growInShares(batch, this.sampler, async (share, first) => {
        const own = await this.sampler.evalRolloutMany(share, { seed, episode: episode + done + first });
        for (const graph of own) checkJudged("Evaluator.evaluate", graph.nodes());
        return { graphs: own, about: await this.computeMetricsMany(own) };
      });
      onGraphs?.(graphs as unknown as readonly Graph[]);
      metrics.push(...about);
      await nextTurn();
      onProgress?.(metrics.length, starts.length);
    }
    return this.aggregateMetrics(metrics);
  }

  #starts(
    rollouts: number | undefined,
    { seed, episode }: { seed: number; episode: number },
  ): readonly (EpisodeSeed | PromptOf<S>)[] {
    if (this.starts === null) {
      if (rollouts === undefined) {
        throw new UsageError(
          "rollouts-required",
          "Evaluator.evaluate: needs the number of rollouts, since no prompts or seeds were given",
        );
      }
      return Array.from({ length: rollouts }, (_, i) => ({ seed, episode: episode + i }));
    }
    if (rollouts !== undefined && rollouts > this.starts.length) {
      throw new UsageError(
        "too-many-rollouts",
        `Evaluator.evaluate: rollouts must be at most the ${this.starts.length} prompts or seeds given, got ${rollouts}`,
      );
    }
    return this.starts.slice(0, rollouts);
  }

  /** Metrics of one rollout. */
  async computeMetrics(graph: Graph<S, A>): Promise<GraphMetrics> {
    const isOverridden = overrides(this, Evaluator.prototype, "computeMetricsMany");
    const [metrics] = isOverridden ? await this.computeMetricsMany([graph]) : await this.measure([graph]);
    return metrics!;
  }

  /** `computeMetrics` for many graphs. */
  async computeMetricsMany(graphs: readonly Graph<S, A>[]): Promise<GraphMetrics[]> {
    if (!overrides(this, Evaluator.prototype, "computeMetrics")) return this.measure(graphs);
    const all: GraphMetrics[] = [];
    for (const graph of graphs) all.push(await this.computeMetrics(graph));
    return all;
  }

  /** Metrics of each rollout; implement this, or `computeMetrics`. */
  protected measure(_graphs: readonly Graph<S, A>[]): Promise<GraphMetrics[]> {
    throw new UsageError(
      "not-implemented",
      `${this.constructor.name}: an evaluator must implement measure, or computeMetrics`,
    );
  }

  /** Aggregates the metrics of all rollouts. */
  abstract aggregateMetrics(all: readonly GraphMetrics[]): Report | Promise<Report>;
}
