import { requireConfidence, type Interval } from "./interval.js";
import { requireCounts } from "./proportion.js";

/** Successes among the trials of one group, such as the rollouts from one prompt. */
export interface Group {
  successes: number;
  trials: number;
}

/** Minimum number of groups for an interval: fewer do not show how much groups differ. */
export const FEWEST_GROUPS = 8;

/** Points of the grids over the share (equidistant in its arcsine, so that small shares are resolved) and the correlation. */
const SHARES = 240;
const CORRELATIONS = 20;
/**
 * Exponent of the prior Beta(a, a) of the share. Jeffreys' ½ covers 86 % and the uniform 1 covers 90 % in some of 160 cases (8 to 64
 * groups of 8, shares of 0.02 to 0.5, correlations of 0 to 0.9), 0.8 at least 93 % but for 8 groups with a share of 0.02.
 */
const PRIOR = 0.8;

/**
 * Interval for a share of items in groups, whose items are correlated: the beta-binomial model (J. G. Skellam,
 * J. R. Stat. Soc. B 10, 1948), in which the share of each group is drawn from a Beta distribution with the mean share μ and
 * the correlation ρ of two items of a group. The bounds are quantiles of μ's posterior, with Beta(0.8, 0.8) as prior of μ and ρ
 * equally likely from 0 to 1, by a sum over a grid.
 *
 * An interval by the observed variance (a design effect) is too narrow if few groups have a success: 16 groups of 8 at
 * a share of 0.05 and a correlation of 0.5 are covered at 87 % by it, at 96 % by this.
 *
 * Returns null for fewer than 8 groups.
 */
export function clusteredInterval(groups: readonly Group[], confidence = 0.95): Interval | null {
  requireConfidence("clusteredInterval", confidence);
  for (const { successes, trials } of groups) requireCounts("clusteredInterval", successes, trials);
  const filled = groups.filter(({ trials }) => trials > 0);
  if (filled.length < FEWEST_GROUPS) return null;
  const trials = filled.reduce((sum, group) => sum + group.trials, 0);
  const successes = filled.reduce((sum, group) => sum + group.successes, 0);
  const posterior = posteriorOfShare(filled);
  const tail = (1 - confidence) / 2;
  return {
    estimate: successes / trials,
    lower: successes === 0 ? 0 : quantileOf(posterior, tail),
    upper: successes === trials ? 1 : quantileOf(posterior, 1 - tail),
  };
}

const shareAt = (point: number) => Math.sin((point / SHARES) * (Math.PI / 2)) ** 2;

interface Factors {
  success: Float64Array;
  failure: Float64Array;
  trial: Float64Array;
  prior: Float64Array;
}

/** Logarithms of the likelihood's factors for the k-th item, by share and correlation; the same for all data. */
const tables: Factors[] = [];

function factors(k: number): Factors {
  if (tables[k] !== undefined) return tables[k];
  const of = (log: (share: number, size: number) => number) =>
    Float64Array.from({ length: SHARES * CORRELATIONS }, (_, cell) => {
      const correlation = ((cell % CORRELATIONS) + 0.5) / CORRELATIONS;
      return log(shareAt(Math.floor(cell / CORRELATIONS) + 0.5), (1 - correlation) / correlation);
    });
  const made = {
    success: of((share, size) => Math.log(share * size + k)),
    failure: of((share, size) => Math.log((1 - share) * size + k)),
    trial: of((_, size) => Math.log(size + k)),
    // In equal cells of the arcsine, Jeffreys' prior is even.
    prior: of((share) => (PRIOR - 0.5) * Math.log(share * (1 - share))),
  };
  // Groups are rarely larger; the tables of one item take 150 kB.
  if (k < 64) tables[k] = made;
  return made;
}

/** Weight of each cell of the grid of shares; sums to 1. */
function posteriorOfShare(groups: readonly Group[]): Float64Array {
  // Number of groups with more than k successes, failures and trials: their factors in the likelihood.
  const longest = Math.max(...groups.map(({ trials }) => trials));
  const above = (of: (group: Group) => number) =>
    Array.from({ length: longest }, (_, count) => groups.filter((group) => of(group) > count).length);
  const [successes, failures, trials] = [
    above((group) => group.successes),
    above((group) => group.trials - group.successes),
    above((group) => group.trials),
  ];
  const logs = Float64Array.from({ length: SHARES * CORRELATIONS }, (_, cell) => factors(0).prior[cell]!);
  // P(s of m) ∝ Π_{k<s} (a + k) · Π_{k<m−s} (b + k) / Π_{k<m} (a + b + k), with a = μ·size, b = (1 − μ)·size.
  for (let k = 0; k < longest; k++) {
    const { success, failure, trial } = factors(k);
    const [s, f, m] = [successes[k]!, failures[k]!, trials[k]!];
    for (let cell = 0; cell < logs.length; cell++) {
      logs[cell]! += s * success[cell]! + f * failure[cell]! - m * trial[cell]!;
    }
  }
  const highest = logs.reduce((most, log) => Math.max(most, log), -Infinity);
  const weights = new Float64Array(SHARES);
  for (let cell = 0; cell < SHARES; cell++) {
    for (let at = 0; at < CORRELATIONS; at++) {
      weights[cell]! += Math.exp(logs[cell * CORRELATIONS + at]! - highest);
    }
  }
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** Assumes a uniform weight within each cell. */
function quantileOf(weights: Float64Array, p: number): number {
  let below = 0;
  for (let cell = 0; cell < SHARES; cell++) {
    const weight = weights[cell]!;
    if (below + weight >= p) return shareAt(cell + (weight === 0 ? 0 : (p - below) / weight));
    below += weight;
  }
  return 1;
}
