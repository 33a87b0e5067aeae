import type { EvaluationSummary } from "@astra-rl/records";
import { percent, plain } from "./figures.js";

/** Number of rollouts needed to estimate a rate, and the `evaluation.repeats` that give as many. */
export interface NeededRollouts {
  rollouts: number;
  repeats: number;
}

/** Standard normal quantile of 95 % intervals. */
const Z = 1.96;

/** A rate is precise enough if its 95 % interval is within this share of it on either side. */
const RELATIVE_ERROR = 0.25;

const TOO_MANY_REPEATS = 100;

/**
 * The number of rollouts that estimate a rate to within a quarter of itself: n = z²·(1 − p) / (0.25²·p), from the
 * normal approximation of the binomial; the lower the rate, the more. Rollouts from one prompt are assumed independent,
 * so it is a lower bound.
 *
 * @returns null if there are enough, or if there is no success to estimate from
 */
export function neededRollouts({
  n_harmless_probe_scored: scored,
  harmless_probe_success_rate: rate,
  n_prompts: prompts,
}: EvaluationSummary): NeededRollouts | null {
  if (!scored || !rate || !prompts) return null;
  const needed = (Z ** 2 * (1 - rate)) / (RELATIVE_ERROR ** 2 * rate);
  const repeats = Math.ceil(needed / prompts);
  // Half as many more would change little.
  if (needed < 1.5 * scored || repeats > TOO_MANY_REPEATS) return null;
  return { rollouts: Math.ceil(needed), repeats };
}

/** Advice if there are too few rollouts for so low a rate; null if there are enough. */
export function repeatsAdvice(summary: EvaluationSummary): string | null {
  const needed = neededRollouts(summary);
  if (needed === null) return null;
  const { n_harmless_probe_scored: scored, harmless_probe_success_rate: rate } = summary;
  return (
    `At ${percent(rate)} with harmless probes, ${scored} rollouts are too few: at least ${needed.rollouts} ` +
    `estimate the rate to within ` +
    `a quarter of it. Set evaluation.repeats to ${needed.repeats}.`
  );
}

/** Standard error below which no note is shown. */
const SMALL_ERROR = 0.02;

/**
 * Standard error of an evaluation's success rate, with Laplace's estimate (k + 1) / (n + 2): with no success, or only
 * successes, the share itself would give an error of 0. null without a rollout.
 */
export function successError({ n_scored: scored, success_rate: rate }: EvaluationSummary): number | null {
  if (scored === 0 || rate === null) return null;
  const p = (rate * scored + 1) / (scored + 2);
  return Math.sqrt((p * (1 - p)) / scored);
}

/**
 * The uncertainty of `checkpoints/best`: rates of few rollouts differ by chance, and the highest of several is partly
 * luck.
 *
 * @param summary of one of the evaluations that selected it
 * @returns null if the standard error is small
 */
export function bestAdvice(summary: EvaluationSummary): string | null {
  const error = successError(summary);
  return error === null || error < SMALL_ERROR
    ? null
    : `the choice of best is uncertain: success on ${summary.n_scored} dev rollouts varies by ` +
        `${plain(100 * error, 1)} points (standard error). Evaluate last as well.`;
}
