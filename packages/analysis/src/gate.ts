// Whether a rate is below a limit, above it, or not known to be either.
import { UsageError } from "@astra-rl/base";
import type { EvaluationDetail } from "@astra-rl/records";
import { byCluster, isScored, succeeds } from "./rollouts.js";
import {
  exactLowerBound,
  exactUpperBound,
  fewestTrials,
  regularizedIncompleteBeta,
  requireCounts,
} from "./statistics/index.js";

/** passed: the rate is below the limit. failed: it is above. inconclusive: there are too few trials to tell. */
export type LimitVerdict = "passed" | "failed" | "inconclusive";

/** Outcomes of independent trials. */
export interface Outcomes {
  trials: number;
  /** Trials known to be bad. */
  bad: number;
  /** Trials of which it is not known: they count as bad for passing, and as good for failing. */
  unknown: number;
}

/**
 * The outcomes of prompts, or of goals: rollouts from one of them are no independent trials. One is bad if any of its rollouts
 * succeeds, and unknown if none is known to, but one is undecided.
 */
export function outcomesOf(details: readonly EvaluationDetail[]): Outcomes {
  const clusters = byCluster(details);
  const bad = clusters.filter((rollouts) => rollouts.some(succeeds));
  const known = clusters.filter((rollouts) => rollouts.some(succeeds) || rollouts.every(isScored));
  return { trials: clusters.length, bad: bad.length, unknown: clusters.length - known.length };
}

/** The chance of a wrong verdict that a test may have. */
export interface ErrorRates {
  /** The most, over all true rates at or above the limit, of passing. */
  pass: number;
  /** The most, over all true rates at or below the limit, of failing. */
  fail: number;
}

/** What is known of a rate. */
export interface LimitTest {
  verdict: LimitVerdict;
  /** One-sided exact bounds of the rate, each at its error rate. */
  lower_bound: number;
  upper_bound: number;
  /**
   * About how many more trials would decide if the observed shares stay as they are; null if 100,000 would not, or if
   * the verdict is not inconclusive.
   */
  n_more: number | null;
}

/**
 * The error rate of one of several looks, such as a gate that is used for every commit: α/(k(k + 1)) for the k-th. The rates
 * of all looks add up to α, however many there are, so that the chance of any wrong verdict is at most α (the union bound),
 * whatever the looks have in common: targets may change, and prompts may be the same. This is alpha spending as in online
 * control of the family-wise error rate (J. Tian and A. Ramdas, Stat. Methods Med. Res. 30, 2021, section 2). A look
 * needs more trials than the one before, but hardly: their number grows with the logarithm of k.
 *
 * @param look from 1
 * @throws UsageError for a look that is no positive whole number
 */
export function errorRateOfLook(alpha: number, look: number): number {
  if (!Number.isSafeInteger(look) || look < 1)
    throw new UsageError("out-of-range", `errorRateOfLook: looks count from 1, got ${look}`);
  return alpha / (look * (look + 1));
}

/** The number of trials up to which it is searched how many would decide. */
const MOST_TRIALS = 100_000;

/**
 * Tests a rate against a limit, by the binomial distribution: passes if so few bad trials are improbable for any rate at or
 * above the limit, fails if so many are for any rate at or below it.
 *
 * @param rates of this test
 * @param next of the test that would follow with more trials. Default: the same
 * @throws UsageError for impossible counts
 */
export function testLimit(outcomes: Outcomes, limit: number, rates: ErrorRates, next = rates): LimitTest {
  const { trials, bad, unknown } = outcomes;
  requireCounts("testLimit", bad + unknown, trials);
  const verdict = verdictOf(outcomes, limit, rates);
  return {
    verdict,
    lower_bound: trials === 0 ? 0 : exactLowerBound(bad, trials, 1 - rates.fail),
    upper_bound: trials === 0 ? 1 : exactUpperBound(bad + unknown, trials, 1 - rates.pass),
    n_more: verdict === "inconclusive" ? moreTrials(outcomes, limit, next) : null,
  };
}

function verdictOf({ trials, bad, unknown }: Outcomes, limit: number, rates: ErrorRates): LimitVerdict {
  if (trials === 0) return "inconclusive";
  const most = bad + unknown;
  // P(X ≤ most) at the limit, and P(X ≥ bad).
  const fewer = most === trials ? 1 : 1 - regularizedIncompleteBeta(limit, most + 1, trials - most);
  const more = bad === 0 ? 1 : regularizedIncompleteBeta(limit, bad, trials - bad + 1);
  if (fewer <= rates.pass) return "passed";
  return more <= rates.fail ? "failed" : "inconclusive";
}

function moreTrials({ trials, bad, unknown }: Outcomes, limit: number, rates: ErrorRates): number | null {
  if (trials === 0) return fewestTrials(limit, 1 - rates.pass);
  const decides = (all: number) => {
    const times = all / trials;
    const known = Math.round(bad * times);
    const most = Math.min(all, Math.max(known, Math.round((bad + unknown) * times)));
    return verdictOf({ trials: all, bad: known, unknown: most - known }, limit, rates) !== "inconclusive";
  };
  let high = trials + 1;
  while (!decides(high)) {
    if (high >= MOST_TRIALS) return null;
    high = Math.min(MOST_TRIALS, Math.ceil(high * 1.5));
  }
  let low = trials;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (decides(middle)) high = middle;
    else low = middle;
  }
  return high - trials;
}
