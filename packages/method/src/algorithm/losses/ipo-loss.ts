import type { Tensor } from "@astra-rl/torch";
import { parseOptions } from "@astra-rl/base";
import { preferenceMargin, type PreferenceLogprobs, type MarginLossOptions } from "../preference/index.js";
import { marginLossOptions } from "../preference/preference-options.js";

/**
 * Identity preference optimization: (h − 1/(2β))², one value for each pair, [B].
 *
 * Azar et al., "A General Theoretical Paradigm to Understand Learning from Human Preferences", arXiv 2310.12036,
 * equation 17, whose τ is β here: the smaller β, the larger the target margin. By default h uses log-probabilities of
 * whole sequences, as in the paper; `lengthNormalize` uses means over tokens, as some libraries do. With label
 * smoothing, the expectation of the loss if a label is flipped with probability ε: (1−ε)·(h − 1/(2β))² + ε·(h +
 * 1/(2β))². This is not in the paper; it follows `dpoLoss`.
 */
export function ipoLoss(logprobs: PreferenceLogprobs, options: MarginLossOptions = {}): Tensor {
  const { beta, labelSmoothing, lengthNormalize } = parseOptions("ipoLoss", marginLossOptions, options);
  const margin = preferenceMargin(logprobs, { lengthNormalize });
  const goal = 1 / (2 * beta);
  const loss = margin.sub(goal).square();
  if (labelSmoothing === 0) return loss;
  return loss.mul(1 - labelSmoothing).add(margin.add(goal).square().mul(labelSmoothing));
}
