import { keyedUniform, UsageError } from "@astra-rl/base";
import type { UnknownReason } from "@astra-rl/records";
import { exactUpperBound, FEWEST_GROUPS, quantile, type Group } from "../statistics/index.js";

/** Success rates of single tries, over goals: a Beta distribution. */
export interface BetaRates {
  alpha: number;
  beta: number;
}

/** α + β: below, goals are all or nothing; above, they are all alike. */
const [LEAST, MOST] = [1e-3, 1e6];

/**
 * Maximum-likelihood fit of a Beta-binomial model: the success rate of each goal is drawn from Beta(α, β).
 *
 * For a given α + β the likelihood is concave in the mean α / (α + β), which safeguarded Newton steps find; α + β itself is
 * searched on a logarithmic grid, then by golden sections.
 *
 * @returns the reason if the tries do not determine a fit
 */
export function fitBetaBinomial(goals: readonly Group[]): BetaRates | UnknownReason {
  const filled = goals.filter(({ trials }) => trials > 0);
  if (filled.length < FEWEST_GROUPS) return "few-goals";
  if (filled.every(({ successes }) => successes === 0)) return "no-success";
  if (filled.every(({ successes, trials }) => successes === trials)) return "all-successes";
  if (filled.every(({ trials }) => trials === 1)) return "single-tries";
  if (filled.every(({ successes, trials }) => successes === 0 || successes === trials))
    return "all-or-nothing";
  const counts = factorCounts(filled);
  const profile = (logSize: number) => bestMean(counts, Math.exp(logSize));
  const step = (Math.log(MOST) - Math.log(LEAST)) / 24;
  const grid = Array.from({ length: 25 }, (_, at) => Math.log(LEAST) + at * step);
  let best = grid[0]!;
  let highest = -Infinity;
  for (const logSize of grid) {
    const { log } = profile(logSize);
    if (log > highest) [best, highest] = [logSize, log];
  }
  const logSize = goldenSection(best - step, best + step, (at) => profile(at).log);
  const size = Math.exp(Math.min(Math.log(MOST), logSize));
  const { mean } = bestMean(counts, size);
  return { alpha: mean * size, beta: (1 - mean) * size };
}

/**
 * The numbers of goals with more than k successes, failures and tries, from k = 0. The likelihood of s of n is
 * Π_{k<s} (α + k) · Π_{k<n−s} (β + k) / Π_{k<n} (α + β + k), so these are the factors' exponents.
 */
interface FactorCounts {
  successes: number[];
  failures: number[];
  trials: number[];
}

function factorCounts(goals: readonly Group[]): FactorCounts {
  const above = (of: (goal: Group) => number): number[] => {
    const counts: number[] = Array.from({ length: Math.max(...goals.map(of)) }, () => 0);
    for (const goal of goals) for (let k = 0; k < of(goal); k++) counts[k]! += 1;
    return counts;
  };
  return {
    successes: above((goal) => goal.successes),
    failures: above((goal) => goal.trials - goal.successes),
    trials: above((goal) => goal.trials),
  };
}

/** The mean rate with the highest likelihood for α + β = size, and the logarithm of that. */
function bestMean(
  { successes, failures, trials }: FactorCounts,
  size: number,
): { mean: number; log: number } {
  let [low, high] = [0, 1];
  let mean = successes.reduce((sum, count) => sum + count, 0) / trials.reduce((sum, count) => sum + count, 0);
  for (let step = 0; step < 60; step++) {
    let slope = 0;
    let curvature = 0;
    for (let k = 0; k < successes.length; k++) {
      const term = size / (mean * size + k);
      slope += successes[k]! * term;
      curvature += successes[k]! * term * term;
    }
    for (let k = 0; k < failures.length; k++) {
      const term = size / ((1 - mean) * size + k);
      slope -= failures[k]! * term;
      curvature += failures[k]! * term * term;
    }
    if (slope > 0) low = mean;
    else high = mean;
    const newton = mean + slope / curvature;
    const next = newton > low && newton < high ? newton : (low + high) / 2;
    if (Math.abs(next - mean) <= 1e-12 * Math.min(next, 1 - next)) break;
    mean = next;
  }
  let log = 0;
  for (let k = 0; k < successes.length; k++) log += successes[k]! * Math.log(mean * size + k);
  for (let k = 0; k < failures.length; k++) log += failures[k]! * Math.log((1 - mean) * size + k);
  for (let k = 0; k < trials.length; k++) log -= trials[k]! * Math.log(size + k);
  return { mean, log };
}

/** The place of the maximum of a function with one, between two ends, to a ten-thousandth. */
function goldenSection(from: number, to: number, of: (at: number) => number): number {
  const ratio = (Math.sqrt(5) - 1) / 2;
  let [low, high] = [from, to];
  let [left, right] = [high - ratio * (high - low), low + ratio * (high - low)];
  let [atLeft, atRight] = [of(left), of(right)];
  while (high - low > 1e-4) {
    if (atLeft > atRight) {
      [high, right, atRight] = [right, left, atLeft];
      left = high - ratio * (high - low);
      atLeft = of(left);
    } else {
      [low, left, atLeft] = [left, right, atRight];
      right = low + ratio * (high - low);
      atRight = of(right);
    }
  }
  return (low + high) / 2;
}

/**
 * The chance that at least one of N tries succeeds, for a goal whose rate is drawn from Beta(α, β):
 * 1 − B(α, β + N) / B(α, β) (SABER, arXiv 2601.22636), as Π_{k<N} (β + k) / (α + β + k).
 */
export function chanceOfBeta({ alpha, beta }: BetaRates, attempts: number): number {
  let log = 0;
  for (let k = 0; k < attempts; k++) log += Math.log1p(-alpha / (alpha + beta + k));
  return -Math.expm1(log);
}

/**
 * Bounds of the share of goals that N tries of each reach, for any distribution of rates over goals. The share reached so far, by
 * the exact bounds of its true value (Clopper–Pearson): no more tries reach fewer. And from n tries of each to N, the share not
 * reached falls at most from u to u^(N / n), because (1 − p)^N is a convex function of (1 − p)^n.
 *
 * @param attempts at least the most tries of a goal
 * @throws UsageError for fewer
 */
export function boundsWithin(
  goals: readonly Group[],
  attempts: number,
  confidence = 0.95,
): { lower: number; upper: number } {
  const filled = goals.filter(({ trials }) => trials > 0);
  const tries = filled.map(({ trials }) => trials);
  if (attempts < Math.max(0, ...tries)) {
    throw new UsageError(
      "out-of-range",
      `boundsWithin: must be asked for at least ${Math.max(...tries)} tries, the most of a goal, got ${attempts}`,
    );
  }
  if (filled.length === 0) return { lower: 0, upper: 1 };
  const oneSided = 1 - (1 - confidence) / 2;
  const reached = filled.filter(({ successes }) => successes > 0).length;
  const missed = filled.length - reached;
  const upper = exactUpperBound(reached, filled.length, oneSided);
  return {
    lower: 1 - exactUpperBound(missed, filled.length, oneSided),
    upper: 1 - (1 - upper) ** (attempts / Math.min(...tries)),
  };
}

export interface ExtrapolationOptions {
  /** Numbers of tries, each more than the most of a goal. */
  attempts: readonly number[];
  /** Seed of the bootstrap. */
  seed: number;
  /** Replicates of the bootstrap. @default 1000 */
  resamples?: number;
  /** @default 0.95 */
  confidence?: number;
}

/** ASR@N for one N. */
export interface Extrapolated {
  attempts: number;
  /** null where it is unknown. */
  rate: number | null;
  interval: { lower: number; upper: number } | null;
  /** For any distribution of rates over goals (`boundsWithin`). */
  bounds: { lower: number; upper: number };
}

export interface Extrapolation {
  /** null where tries do not determine it, with the reason. */
  rates: BetaRates | null;
  reason: UnknownReason | null;
  at: Extrapolated[];
}

/**
 * ASR@N from fewer tries: the share of goals that N tries of each reach, by a Beta-binomial fit, with a percentile bootstrap over
 * goals. A replicate without a fit counts as its reached share at the lower end and as 1 at the upper one. Where there is no
 * fit, the rate is unknown, and only bounds are given.
 *
 * It holds where the rates of goals follow a Beta distribution: then it is right to 2 points for 1000 goals of 10 tries, and to 3
 * for 200. Where they are a mixture it may be 20 to 40 points too high (half of the goals cannot be reached at all) or too low (a
 * third is easy, the rest is hard), and its interval does not show it; the bounds hold.
 */
export function extrapolate(
  goals: readonly Group[],
  { attempts, seed, resamples = 1000, confidence = 0.95 }: ExtrapolationOptions,
): Extrapolation {
  const filled = goals.filter(({ trials }) => trials > 0);
  const fit = fitBetaBinomial(filled);
  const bounds = attempts.map((count) => boundsWithin(filled, count, confidence));
  if (typeof fit === "string") {
    const at = attempts.map((count, index) => ({
      attempts: count,
      rate: null,
      interval: null,
      bounds: bounds[index]!,
    }));
    return { rates: null, reason: fit, at };
  }
  const ends = attempts.map(() => ({ low: new Float64Array(resamples), high: new Float64Array(resamples) }));
  for (let replicate = 0; replicate < resamples; replicate++) {
    const key = { seed, stream: "bootstrap", episode: replicate, node: 0 };
    const drawn = filled.map((_, i) => filled[Math.floor(keyedUniform(key, i) * filled.length)]!);
    const found = fitBetaBinomial(drawn);
    const reached = drawn.filter(({ successes }) => successes > 0).length / drawn.length;
    for (const [index, count] of attempts.entries()) {
      const chance = typeof found === "string" ? null : chanceOfBeta(found, count);
      ends[index]!.low[replicate] = chance ?? reached;
      ends[index]!.high[replicate] = chance ?? 1;
    }
  }
  const tail = (1 - confidence) / 2;
  return {
    rates: fit,
    reason: null,
    at: attempts.map((count, index) => ({
      attempts: count,
      rate: chanceOfBeta(fit, count),
      interval: {
        lower: quantile(ends[index]!.low.sort(), tail),
        upper: quantile(ends[index]!.high.sort(), 1 - tail),
      },
      bounds: bounds[index]!,
    })),
  };
}
