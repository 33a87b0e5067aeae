import type { Tensor } from "@astra-rl/torch";
import { parseOptions } from "@astra-rl/base";
import { preferenceMargin, type PreferenceLogprobs, type MarginLossOptions } from "../preference/index.js";
import { marginLossOptions } from "../preference/preference-options.js";

/**
 * Direct preference optimization: −(1−ε)·logσ(βh) − ε·logσ(−βh), one value for each pair, [B].
 *
 * Rafailov et al., "Direct Preference Optimization", arXiv 2305.18290, equation 7; ε is the probability that a label is
 * wrong. The label-smoothed form is the conservative DPO of E. Mitchell, "A note on DPO with noisy preferences and
 * relationship to IPO" (2023); unlike the "robust" variant it is not divided by 1 − 2ε.
 */
export function dpoLoss(logprobs: PreferenceLogprobs, options: MarginLossOptions = {}): Tensor {
  const { beta, labelSmoothing, lengthNormalize } = parseOptions("dpoLoss", marginLossOptions, options);
  const scaled = preferenceMargin(logprobs, { lengthNormalize }).mul(beta);
  const loss = scaled.logSigmoid().neg();
  if (labelSmoothing === 0) return loss;
  return loss.mul(1 - labelSmoothing).sub(scaled.neg().logSigmoid().mul(labelSmoothing));
}
