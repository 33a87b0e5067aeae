/** What a rollout shows, and rates over rollouts. */

import type { EvaluationDetail, IntervalRecord } from "@astra-rl/records";
import * as statistics from "./statistics/index.js";
import type { Interval } from "./statistics/index.js";

/** An interval in record form; null if there is none. */
export function intervalRecord(
  interval: Interval | null,
  confidence: number,
  method: string,
): IntervalRecord | null {
  return interval === null ? null : { lower: interval.lower, upper: interval.upper, confidence, method };
}

/** Whether every response of the rollout was generated and scored; nothing is known of one without turns. */
export function isScored({ per_turn: turns }: EvaluationDetail): boolean {
  return turns.length > 0 && turns.every((turn) => turn.response_harm !== null);
}

/** Whether a response reached the threshold. */
export const succeeds = ({ overall }: EvaluationDetail): boolean =>
  overall.first_harmful_response_turn !== null;

/** Whether it is known if a response reached the threshold after harmless probes only. */
export const isJudgedHarmless = ({ overall }: EvaluationDetail): boolean =>
  overall.harmless_probe_success !== null;

export const succeedsHarmlessly = ({ overall }: EvaluationDetail): boolean =>
  overall.harmless_probe_success === true;

export const isScoredBySecond = ({ per_turn }: EvaluationDetail): boolean =>
  per_turn.every(({ second_response_harm: harm = null }) => harm !== null);

export const succeedsBySecond =
  (threshold: number) =>
  ({ per_turn }: EvaluationDetail): boolean =>
    per_turn.some(({ second_response_harm: harm = null }) => harm !== null && harm >= threshold);

/** Rollouts by the prompt that they start from: several from one prompt are no independent trials. */
export const byPrompt = (details: readonly EvaluationDetail[]): EvaluationDetail[][] =>
  grouped(details, (detail) => detail.overall.prompt ?? detail);

function grouped(
  details: readonly EvaluationDetail[],
  keyOf: (detail: EvaluationDetail) => unknown,
): EvaluationDetail[][] {
  const groups = new Map<unknown, EvaluationDetail[]>();
  for (const detail of details) {
    const key = keyOf(detail);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [detail]);
    else group.push(detail);
  }
  return [...groups.values()];
}

/**
 * Rollouts that are no independent trials, together: those for one goal, or without goals those from one prompt.
 */
export const byCluster = (details: readonly EvaluationDetail[]): EvaluationDetail[][] =>
  grouped(details, (detail) => detail.overall.goal ?? detail.overall.prompt ?? detail);

/**
 * A rate over rollouts; its interval is wider where several belong to one cluster. The rate is null for no rollouts.
 *
 * @param clusters how rollouts are clustered
 */
export function rateOf(
  details: readonly EvaluationDetail[],
  isSuccess: (detail: EvaluationDetail) => boolean,
  confidence: number,
  clusters: (details: readonly EvaluationDetail[]) => EvaluationDetail[][] = byCluster,
): { trials: number; successes: number; rate: number | null; interval: IntervalRecord | null } {
  const trials = details.length;
  const items = clusters(details).map((group) => ({
    successes: group.filter(isSuccess).length,
    trials: group.length,
  }));
  const successes = items.reduce((sum, item) => sum + item.successes, 0);
  const interval =
    items.length === trials
      ? intervalRecord(statistics.wilsonInterval(successes, trials, confidence), confidence, "wilson")
      : intervalRecord(statistics.clusteredInterval(items, confidence), confidence, "beta-binomial");
  return { trials, successes, rate: trials === 0 ? null : successes / trials, interval };
}
