import type { EvaluationSummary } from "../records/index.js";
import { percent, plain } from "./figures.js";

/** Standard normal quantile of 95 % intervals. */
const Z = 1.96;

/** A rate is told well enough if its 95 % interval is this share of it to either side. */
const RELATIVE_ERROR = 0.25;

const TOO_MANY_REPEATS = 100;

/**
 * How many rollouts tell a rate to within a quarter of itself: n = z²·(1 − p) / (0.25²·p), from the normal approximation
 * of the binomial; the lower the rate, the more. As a setting, since prompts are usually given.
 *
 * @returns null where there are enough, or where no success says how many that would be
 */
export function repeatsAdvice(summary: EvaluationSummary): string | null {
  const { n_harmless_probe_scored: scored, harmless_probe_success_rate: rate, n_prompts: prompts } = summary;
  if (!scored || !rate || !prompts) return null;
  const needed = (Z ** 2 * (1 - rate)) / (RELATIVE_ERROR ** 2 * rate);
  const repeats = Math.ceil(needed / prompts);
  // Half as many more would change little.
  if (needed < 1.5 * scored || repeats > TOO_MANY_REPEATS) return null;
  return (
    `At ${percent(rate)}, ${scored} rollouts tell little: about ${Math.ceil(needed / 10) * 10} tell the rate to within a ` +
    `quarter of it. Set evaluation.repeats to ${repeats}.`
  );
}

/**
 * What `checkpoints/best` is worth: rates of few rollouts differ by chance, and the highest of several is partly luck.
 *
 * @param summary of one of the evaluations that it was chosen by
 * @returns null where the standard error is below two points
 */
export function bestAdvice({ n_scored: scored, success_rate: rate }: EvaluationSummary): string | null {
  if (scored === 0 || rate === null) return null;
  // With no success, or with nothing else, the estimate would say that there is no chance in it.
  const p = (rate * scored + 1) / (scored + 2);
  const error = Math.sqrt((p * (1 - p)) / scored);
  return error < 0.02
    ? null
    : `best is a guess: success on ${scored} dev rollouts varies by ${plain(100 * error, 1)} points (standard error). Evaluate last as well.`;
}
