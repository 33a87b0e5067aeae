import type { EvaluationDetail, GoalFigures, GoalRecord, GoalsSummary } from "@astra-rl/records";
import { byPrompt, isJudgedHarmless, isScored, rateOf, succeeds, succeedsHarmlessly } from "../rollouts.js";
import type { Group } from "../statistics/index.js";
import { successWithin } from "./attempts.js";
import { extrapolate } from "./beta-binomial.js";
import { budgetUntil, type Try } from "./budget.js";

/** Numbers of tries that success is extrapolated to: those above the tries made, to so many times as many. */
const ATTEMPTS = [10, 100, 1000];
const FARTHEST = 20;
/** Shares of goals that a budget is given for. */
const SHARES = [0.25, 0.5, 0.9];

type Test = (detail: EvaluationDetail) => boolean;

/** How a success is told: which rollouts are known to be one or none, and which are. */
interface Success {
  isKnown: Test;
  isSuccess: Test;
}

const ANY: Success = { isKnown: isScored, isSuccess: succeeds };
const HARMLESS: Success = { isKnown: isJudgedHarmless, isSuccess: succeedsHarmlessly };

/**
 * Success by goal, category and number of tries, each as a whole and with harmless probes only. A rollout without a goal, or
 * without every score, is left out; goals without a scored rollout are named.
 */
export function summarizeGoals(
  details: readonly EvaluationDetail[],
  goals: readonly GoalRecord[],
  { confidence, seed = 0 }: { confidence: number; seed?: number },
): GoalsSummary {
  const byId = new Map(goals.map(({ id }) => [id, [] as EvaluationDetail[]]));
  for (const detail of details) byId.get(detail.overall.goal ?? "")?.push(detail);
  const of = (wanted: readonly GoalRecord[]) => wanted.flatMap(({ id }) => byId.get(id)!);
  const rate = (rollouts: readonly EvaluationDetail[], success: Success, clusters?: typeof byPrompt) => {
    const found = rateOf(rollouts.filter(success.isKnown), success.isSuccess, confidence, clusters);
    return { n: found.trials, n_successes: found.successes, rate: found.rate, interval: found.interval };
  };
  const figures = (success: Success) => goalFigures(goals, byId, success, { confidence, seed });
  const categories = [...new Set(goals.map(({ category }) => category ?? null))];
  return {
    n_goals: goals.length,
    success: figures(ANY),
    harmless_probe: figures(HARMLESS),
    by_category: categories.every((category) => category === null)
      ? []
      : categories.map((category) => {
          const own = goals.filter((goal) => (goal.category ?? null) === category);
          const reached = (success: Success) =>
            own.filter(({ id }) =>
              byId.get(id)!.some((detail) => success.isKnown(detail) && success.isSuccess(detail)),
            ).length;
          return {
            category,
            n_goals: own.length,
            n_reached: reached(ANY),
            n_harmless_reached: reached(HARMLESS),
            success: rate(of(own), ANY),
            harmless_probe: rate(of(own), HARMLESS),
          };
        }),
    by_goal: goals.map((goal) => ({
      id: goal.id,
      success: rate(of([goal]), ANY, byPrompt),
      harmless_probe: rate(of([goal]), HARMLESS, byPrompt),
    })),
  };
}

function goalFigures(
  goals: readonly GoalRecord[],
  byId: ReadonlyMap<string, readonly EvaluationDetail[]>,
  { isKnown, isSuccess }: Success,
  { confidence, seed }: { confidence: number; seed: number },
): GoalFigures {
  const tried = goals.map(({ id }) => ({ id, rollouts: byId.get(id)!.filter(isKnown) }));
  const scored = tried.filter(({ rollouts }) => rollouts.length > 0);
  const isReached = ({ rollouts }: (typeof tried)[number]) => rollouts.some(isSuccess);
  const groups = scored.map(({ rollouts }): Group => ({
    successes: rollouts.filter(isSuccess).length,
    trials: rollouts.length,
  }));
  const most = Math.max(0, ...groups.map(({ trials }) => trials));
  const { rates, reason, at } = extrapolate(groups, {
    attempts: ATTEMPTS.filter((attempts) => attempts > most && attempts <= FARTHEST * most),
    seed,
    confidence,
  });
  const ended = (ends: { lower: number; upper: number } | null, method: string) =>
    ends === null ? null : { ...ends, confidence, method };
  const tries = scored.map(({ rollouts }) => rollouts.map((detail) => tryOf(detail, isSuccess)));
  return {
    n_scored: scored.length,
    n_reached: scored.filter(isReached).length,
    never_reached: scored.filter((goal) => !isReached(goal)).map(({ id }) => id),
    not_scored: tried.filter(({ rollouts }) => rollouts.length === 0).map(({ id }) => id),
    within: successWithin(groups),
    extrapolated: {
      alpha: rates?.alpha ?? null,
      beta: rates?.beta ?? null,
      reason,
      at: at.map(({ attempts, rate, interval, bounds }) => ({
        attempts,
        rate,
        interval: ended(interval, "bootstrap-goals"),
        bounds: ended(bounds, "clopper-pearson-goals")!,
      })),
    },
    budget:
      scored.length === 0
        ? []
        : SHARES.map((share) => {
            const { n_goals, rounds, tries: total, costs } = budgetUntil(tries, share);
            return {
              share,
              n_goals,
              rounds,
              tries: total,
              turns: costs["turns"]!,
              probe_tokens: costs["probe_tokens"]!,
            };
          }),
  };
}

/** A rollout, with its turns and the probes' tokens for the target. */
function tryOf(detail: EvaluationDetail, isSuccess: Test): Try {
  const tokens = detail.per_turn.map(({ probe_tokens: count }) => count);
  return {
    isSuccess: isSuccess(detail),
    costs: {
      turns: detail.per_turn.length,
      probe_tokens: tokens.some((count) => count === null)
        ? null
        : tokens.reduce<number>((sum, count) => sum + count!, 0),
    },
  };
}
