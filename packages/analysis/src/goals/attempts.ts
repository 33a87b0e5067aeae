import { UsageError } from "@astra-rl/base";
import type { GoalFigures } from "@astra-rl/records";
import { mean, requireCounts, type Group } from "../statistics/index.js";

/**
 * The chance that at least one of k tries succeeds: the unbiased estimate 1 − C(n − c, k) / C(n, k) from n tries with c
 * successes (Chen et al., arXiv 2107.03374).
 *
 * @throws UsageError unless k is a whole number from 1 to n
 */
export function chanceWithin({ successes, trials }: Group, k: number): number {
  requireCounts("chanceWithin", successes, trials);
  if (!Number.isSafeInteger(k) || k < 1 || k > trials) {
    throw new UsageError(
      "out-of-range",
      `chanceWithin: k must be a whole number from 1 to ${trials}, the number of tries, got ${k}`,
    );
  }
  const failures = trials - successes;
  let none = 1;
  for (let draw = 0; draw < k; draw++) none *= Math.max(0, failures - draw) / (trials - draw);
  return 1 - none;
}

/** ASR@k for each k up to the most tries of a goal: `chanceWithin`, averaged over goals with at least k tries. */
export function successWithin(goals: readonly Group[]): GoalFigures["within"] {
  const most = Math.max(0, ...goals.map(({ trials }) => trials));
  return Array.from({ length: most }, (_, at) => {
    const enough = goals.filter(({ trials }) => trials > at);
    return {
      attempts: at + 1,
      rate: mean(enough.map((goal) => chanceWithin(goal, at + 1))),
      n_goals: enough.length,
      n_left_out: goals.length - enough.length,
    };
  });
}
