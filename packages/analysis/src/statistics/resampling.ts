/** Resampling with keyed random draws: replicate r of a seed does not depend on what was computed before it. */

import { keyedUniform, UsageError, type DrawKey } from "@astra-rl/base";
import { requireConfidence, type Interval } from "./interval.js";
import { mean } from "./mean.js";

export interface ResamplingOptions {
  /** Seed of the random draws. */
  seed: number;
  /** Number of replicates. @default 10000 */
  resamples?: number;
}

export interface BootstrapOptions extends ResamplingOptions {
  /** Confidence level of the interval. @default 0.95 */
  confidence?: number;
}

/**
 * Percentile bootstrap of the mean (B. Efron, Ann. Statist. 7, 1979): n values drawn with replacement, `resamples`
 * times. Returns null for fewer than two values.
 */
export const bootstrapMean = (values: readonly number[], options: BootstrapOptions): Interval | null =>
  bootstrap("bootstrapMean", values, mean, options);

function bootstrap(
  where: string,
  values: readonly number[],
  statistic: (values: readonly number[]) => number,
  { seed, resamples = 10_000, confidence = 0.95 }: BootstrapOptions,
): Interval | null {
  requireConfidence(where, confidence);
  requireResamples(where, resamples);
  if (values.length < 2) return null;
  const found = new Float64Array(resamples);
  for (let replicate = 0; replicate < resamples; replicate++) {
    const key = { seed, stream: "bootstrap", episode: replicate, node: 0 };
    found[replicate] = statistic(
      values.map((_, i) => values[Math.floor(keyedUniform(key, i) * values.length)]!),
    );
  }
  found.sort();
  const tail = (1 - confidence) / 2;
  return { estimate: statistic(values), lower: quantile(found, tail), upper: quantile(found, 1 - tail) };
}

/** Samples `count` values without replacement, in random order; all of them, shuffled, if there are no more. */
export function sampleWithoutReplacement<T>(values: readonly T[], count: number, key: DrawKey): T[] {
  const left = [...values];
  const drawn: T[] = [];
  for (let draw = 0; draw < count && left.length > 0; draw++) {
    const place = Math.floor(keyedUniform(key, draw) * left.length);
    drawn.push(left[place]!);
    left[place] = left.at(-1)!;
    left.pop();
  }
  return drawn;
}

/** Percentile bootstrap of the mean of second − first over paired items. Returns null for fewer than two pairs. */
export function pairedBootstrap(
  first: readonly number[],
  second: readonly number[],
  options: BootstrapOptions,
): Interval | null {
  return bootstrapMean(differences("pairedBootstrap", first, second), options);
}

/**
 * Two-sided permutation test that paired items have the same distribution: under the hypothesis each difference is as
 * likely with either sign. Enumerates all 2ⁿ sign patterns if there are at most `resamples`; otherwise samples
 * `resamples` of them and counts the observed one, so that p is never 0 (B. Phipson & G. K. Smyth, Stat. Appl. Genet.
 * Mol. Biol. 9, 2010).
 */
export function pairedPermutation(
  first: readonly number[],
  second: readonly number[],
  { seed, resamples = 10_000 }: ResamplingOptions,
): number {
  requireResamples("pairedPermutation", resamples);
  // Zero differences have no effect under either sign, so they are skipped.
  const signed = differences("pairedPermutation", first, second).filter((difference) => difference !== 0);
  if (signed.length === 0) return 1;
  const observed = Math.abs(signed.reduce((sum, difference) => sum + difference, 0));
  // Rounding differs between summation orders; a pattern that ties with the observed one must count.
  const scale = signed.reduce((sum, difference) => sum + Math.abs(difference), 0);
  const threshold = observed - 1e-12 * scale;
  if (signed.length < 31 && 2 ** signed.length <= resamples) {
    const patterns = 2 ** signed.length;
    let extreme = 0;
    for (let pattern = 0; pattern < patterns; pattern++) {
      let sum = 0;
      for (let i = 0; i < signed.length; i++) sum += pattern & (1 << i) ? -signed[i]! : signed[i]!;
      if (Math.abs(sum) >= threshold) extreme += 1;
    }
    return extreme / patterns;
  }
  let extreme = 1;
  for (let replicate = 0; replicate < resamples; replicate++) {
    const key = { seed, stream: "permutation", episode: replicate, node: 0 };
    let sum = 0;
    for (let i = 0; i < signed.length; i++) sum += keyedUniform(key, i) < 0.5 ? -signed[i]! : signed[i]!;
    if (Math.abs(sum) >= threshold) extreme += 1;
  }
  return extreme / (resamples + 1);
}

/** Quantile of sorted values by linear interpolation between order statistics (Hyndman & Fan's type 7). */
export function quantile(sorted: Float64Array, p: number): number {
  const position = p * (sorted.length - 1);
  const below = Math.floor(position);
  const low = sorted[below]!;
  const high = sorted[Math.min(below + 1, sorted.length - 1)]!;
  return low + (position - below) * (high - low);
}

function differences(where: string, first: readonly number[], second: readonly number[]): number[] {
  if (first.length !== second.length) {
    throw new UsageError(
      "unequal-counts",
      `${where}: pairs need equally many values, got ${first.length} and ${second.length}`,
    );
  }
  return first.map((value, i) => second[i]! - value);
}

function requireResamples(where: string, resamples: number): void {
  if (!Number.isSafeInteger(resamples) || resamples < 1) {
    throw new UsageError(
      "out-of-range",
      `${where}: resamples must be a whole number of at least 1, got ${resamples}`,
    );
  }
}
