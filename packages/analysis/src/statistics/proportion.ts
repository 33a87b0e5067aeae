import { UsageError } from "@astra-rl/base";
import { normalQuantile, regularizedIncompleteBeta } from "./distributions.js";
import { requireConfidence, type Interval } from "./interval.js";

/**
 * Wilson's score interval for a share (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927), without continuity correction.
 *
 * It keeps its coverage near 0 and 1, where the usual "p ± 1.96 s" collapses: 0 successes of 20 gives [0, 0.16].
 * Returns null for 0 trials, where the share is undefined.
 */
export function wilsonInterval(successes: number, trials: number, confidence = 0.95): Interval | null {
  requireCounts("wilsonInterval", successes, trials);
  requireConfidence("wilsonInterval", confidence);
  return trials === 0 ? null : wilson(successes / trials, trials, confidence);
}

function wilson(share: number, trials: number, confidence: number): Interval {
  const z = normalQuantile(0.5 + confidence / 2);
  const denominator = 1 + (z * z) / trials;
  const center = (share + (z * z) / (2 * trials)) / denominator;
  const half =
    (z / denominator) * Math.sqrt((share * (1 - share)) / trials + (z * z) / (4 * trials * trials));
  return {
    estimate: share,
    // At shares of 0 and 1, center and half-width are equal up to rounding; the true bound is exactly 0 or 1.
    lower: share === 0 ? 0 : Math.max(0, center - half),
    upper: share === 1 ? 1 : Math.min(1, center + half),
  };
}

/**
 * One-sided exact upper bound of a share (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934): with a true share at or above
 * the bound, so few successes are seen with probability 1 − confidence or less. 1 for 0 trials.
 */
export function exactUpperBound(successes: number, trials: number, confidence = 0.95): number {
  requireCounts("exactUpperBound", successes, trials);
  requireConfidence("exactUpperBound", confidence);
  if (successes === trials) return 1;
  // P(X ≤ k | p) = 1 − I_p(k + 1, n − k), which falls as p grows.
  let [lower, upper] = [successes / trials, 1];
  for (let halving = 0; halving < 60; halving++) {
    const middle = (lower + upper) / 2;
    if (1 - regularizedIncompleteBeta(middle, successes + 1, trials - successes) > 1 - confidence)
      lower = middle;
    else upper = middle;
  }
  return upper;
}

/** One-sided exact lower bound of a share, as `exactUpperBound`. 0 for 0 trials. */
export function exactLowerBound(successes: number, trials: number, confidence = 0.95): number {
  requireCounts("exactLowerBound", successes, trials);
  return 1 - exactUpperBound(trials - successes, trials, confidence);
}

/** The minimum number of trials whose upper bound can be at most `share`: without any success. */
export function fewestTrials(share: number, confidence = 0.95): number {
  requireConfidence("fewestTrials", confidence);
  if (!(share > 0 && share < 1))
    throw new UsageError("out-of-range", `fewestTrials: the share must lie between 0 and 1, got ${share}`);
  return Math.ceil(Math.log(1 - confidence) / Math.log1p(-share) - 1e-9);
}

/**
 * p-values adjusted for their number, so that the chance of any false rejection at a level is at most that level
 * (S. Holm, Scand. J. Statist. 6, 1979). Unknown ones stay null, and do not count.
 */
export function holmAdjusted(pValues: readonly (number | null)[]): (number | null)[] {
  const order = pValues.flatMap((p, at) => (p === null ? [] : [{ p, at }])).sort((a, b) => a.p - b.p);
  const adjusted: (number | null)[] = pValues.map(() => null);
  let highest = 0;
  for (const [rank, { p, at }] of order.entries()) {
    highest = Math.max(highest, Math.min(1, p * (order.length - rank)));
    adjusted[at] = highest;
  }
  return adjusted;
}

/**
 * Exact two-sided p-value of McNemar's test: among the pairs in which the two conditions differ, is each direction
 * equally likely? The binomial test with p = ½ on the discordant pairs (Q. McNemar, Psychometrika 12, 1947).
 *
 * `onlyFirst` and `onlySecond` count the pairs in which only that condition succeeded. Without discordant pairs p is 1.
 */
export function exactMcNemar(onlyFirst: number, onlySecond: number): number {
  requireCounts("exactMcNemar", onlyFirst, onlyFirst + onlySecond);
  const n = onlyFirst + onlySecond;
  const smaller = Math.min(onlyFirst, onlySecond);
  if (2 * smaller === n) return 1;
  // Σ_{k ≤ smaller} C(n, k)·2⁻ⁿ, taken downwards from its largest term, whose logarithm is a sum of logarithms.
  let logTerm = -n * Math.LN2;
  for (let k = 1; k <= smaller; k++) logTerm += Math.log((n - k + 1) / k);
  let relative = 1;
  let sum = 1;
  for (let k = smaller; k >= 1; k--) {
    relative *= k / (n - k + 1);
    sum += relative;
  }
  return Math.min(1, 2 * Math.exp(logTerm) * sum);
}

/** Outcomes of two conditions on the same items. */
export interface PairedCounts {
  both: number;
  onlyFirst: number;
  onlySecond: number;
  neither: number;
}

/** Counts items by two judgements of each. */
export function pairedCounts<T>(
  items: readonly T[],
  first: (item: T) => boolean,
  second: (item: T) => boolean,
): PairedCounts {
  const count = (isFirst: boolean, isSecond: boolean) =>
    items.filter((item) => first(item) === isFirst && second(item) === isSecond).length;
  return {
    both: count(true, true),
    onlyFirst: count(true, false),
    onlySecond: count(false, true),
    neither: count(false, false),
  };
}

/**
 * Interval for the difference of two paired shares, second − first: R. G. Newcombe, Statist. Med. 17, 2635–2650
 * (1998), method 10: the square-and-add combination of the two Wilson intervals, with the correlation φ of the
 * pairs corrected for continuity. Returns null without pairs.
 */
export function newcombePairedDifference(counts: PairedCounts, confidence = 0.95): Interval | null {
  const { both, onlyFirst, onlySecond, neither } = counts;
  const n = both + onlyFirst + onlySecond + neither;
  for (const count of [both, onlyFirst, onlySecond, neither])
    requireCounts("newcombePairedDifference", count, n);
  if (n === 0) return null;
  const first = wilsonInterval(both + onlyFirst, n, confidence)!;
  const second = wilsonInterval(both + onlySecond, n, confidence)!;
  const product = (both + onlyFirst) * (onlySecond + neither) * (both + onlySecond) * (onlyFirst + neither);
  const cross = both * neither - onlyFirst * onlySecond;
  const corrected = cross > 0 ? Math.max(cross - n / 2, 0) : cross;
  const phi = product === 0 ? 0 : corrected / Math.sqrt(product);
  const combine = (a: number, b: number) => Math.sqrt(Math.max(0, a * a - 2 * phi * a * b + b * b));
  const estimate = (onlySecond - onlyFirst) / n;
  return {
    estimate,
    lower: estimate - combine(second.estimate - second.lower, first.upper - first.estimate),
    upper: estimate + combine(second.upper - second.estimate, first.estimate - first.lower),
  };
}

export function requireCounts(where: string, part: number, whole: number): void {
  if (!Number.isSafeInteger(part) || !Number.isSafeInteger(whole) || part < 0 || part > whole) {
    throw new UsageError(
      "impossible-counts",
      `${where}: counts must be whole numbers with 0 ≤ part ≤ whole, got ${part} of ${whole}`,
    );
  }
}

/**
 * Cohen's kappa of two raters on the same items (J. Cohen, Educ. Psychol. Meas. 20, 1960): agreement beyond chance, 1 for
 * complete agreement, 0 for that of independent raters. null where both give every item the same one verdict, or for no
 * items: then chance explains all agreement.
 */
export function cohenKappa({ both, onlyFirst, onlySecond, neither }: PairedCounts): number | null {
  const n = both + onlyFirst + onlySecond + neither;
  const [first, second] = [(both + onlyFirst) / n, (both + onlySecond) / n];
  const chance = first * second + (1 - first) * (1 - second);
  return n === 0 || chance === 1 ? null : ((both + neither) / n - chance) / (1 - chance);
}
