import type { Tensor } from "@astra-rl/torch";
import { z } from "zod";
import { parseOptions } from "@astra-rl/base";
import { divisors } from "../preference/preference-margin.js";
import type { PreferenceLogprobs } from "../preference/index.js";

export const orpoLossOptions = z.object({
  lambda: z
    .number()
    .min(0)
    .default(0.1)
    .describe("Weight of the odds ratio term relative to the likelihood of the chosen probe"),
});

export type ORPOLossOptions = z.input<typeof orpoLossOptions>;

/** The terms of ORPO's loss, one value for each pair, [B]. */
export interface ORPOParts {
  /** Mean −log π per token of the chosen continuation. */
  nll: Tensor;
  /** log(odds(w) / odds(l)). */
  logOdds: Tensor;
}

/**
 * Odds ratio preference optimization: NLL(w) − λ · log σ(log(odds(w) / odds(l))), one value for each pair, [B]. It uses
 * no baseline.
 *
 * Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model", arXiv 2403.07691, equations 3 to 7:
 * odds(y) = P(y) / (1 − P(y)), where log P(y) is the mean over y's tokens of log π (equation 3), and NLL(w) = −log
 * P(w). If P = 1, as for an empty continuation, the odds would be infinite; log P is clamped to at most −1e-6.
 *
 * @throws UsageError when λ is negative, or lengths are missing
 */
export function orpoLoss(logprobs: PreferenceLogprobs, options: ORPOLossOptions = {}): Tensor {
  const { lambda } = parseOptions("orpoLoss", orpoLossOptions, options);
  const { nll, logOdds } = orpoParts(logprobs);
  return nll.sub(logOdds.logSigmoid().mul(lambda));
}

/** The terms of `orpoLoss`, for logging. */
export function orpoParts({
  chosen,
  rejected,
  chosenLengths,
  rejectedLengths,
}: PreferenceLogprobs): ORPOParts {
  const chosenMean = chosen.div(divisors("orpoLoss:", "chosenLengths", chosenLengths, chosen));
  const rejectedMean = rejected.div(divisors("orpoLoss:", "rejectedLengths", rejectedLengths, rejected));
  return { nll: chosenMean.neg(), logOdds: logOddsOf(chosenMean).sub(logOddsOf(rejectedMean)) };
}

/** log(P / (1 − P)) = log P − log(1 − P), with 1 − P = −expm1(log P), which is exact where P is close to 1. */
function logOddsOf(logprobs: Tensor): Tensor {
  const below = logprobs.clampMax(-1e-6);
  return below.sub(below.expm1().neg().log());
}
