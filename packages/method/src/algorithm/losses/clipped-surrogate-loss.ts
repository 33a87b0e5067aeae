import type { Tensor } from "@astra-rl/torch";
import { z } from "zod";
import { parseOptions } from "@astra-rl/base";
import { policyOptions } from "../policy-gradient/policy-options.js";

/** Other options are ignored, because an algorithm passes all of its own. */
const clippedSurrogateOptions = z.object({
  clipRange: policyOptions.clipRange,
  clipRangeHigher: policyOptions.clipRangeHigher,
});

/** ε: ratios are clipped to 1 ± ε, by default 0.2; the upper one may be another ("clip higher"). */
export type ClippedSurrogateOptions = z.input<typeof clippedSurrogateOptions>;

/**
 * PPO's clipped surrogate: −min(ρ·A, clip(ρ, 1 − ε, 1 + ε)·A) per token, with ρ = exp(log π − log π_old).
 *
 * Schulman et al., "Proximal Policy Optimization Algorithms", arXiv 1707.06347, equation 7; separate upper ε: Yu et
 * al., "DAPO", arXiv 2503.14476, equation 10. π_old is the policy before the updates of the experience, never the
 * baseline.
 *
 * @param logprobs log π of each token, with a gradient
 * @param old log π_old, of the same shape; no gradient flows into it
 * @param advantages of the same shape; no gradient flows into them
 * @returns the loss of each token, of the same shape
 * @throws UsageError when ε is out of range
 */
export function clippedSurrogateLoss(
  logprobs: Tensor,
  old: Tensor,
  advantages: Tensor,
  options: ClippedSurrogateOptions = {},
): Tensor {
  const given = parseOptions("clippedSurrogateLoss", clippedSurrogateOptions, options);
  const { clipRange, clipRangeHigher = clipRange } = given;
  const fixed = advantages.detach();
  const ratio = logprobs.sub(old.detach()).exp();
  const clipped = ratio.clamp(1 - clipRange, 1 + clipRangeHigher);
  return ratio.mul(fixed).minimum(clipped.mul(fixed)).neg();
}
