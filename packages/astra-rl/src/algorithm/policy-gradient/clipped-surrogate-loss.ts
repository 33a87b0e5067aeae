import { UsageError, type Tensor } from "@astra-rl/torch";

export interface ClippedSurrogateOptions {
  /** ε: ratios are clipped to 1 ± ε. @default 0.2 */
  clipRange?: number;
  /** A different upper ε ("clip higher"). Default: `clipRange`. */
  clipRangeHigher?: number;
}

/** ε of Schulman et al., table 3. */
export const CLIP_RANGE = 0.2;

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
  { clipRange = CLIP_RANGE, clipRangeHigher = clipRange }: ClippedSurrogateOptions = {},
): Tensor {
  requireClipRange("clippedSurrogateLoss", { clipRange, clipRangeHigher });
  const fixed = advantages.detach();
  const ratio = logprobs.sub(old.detach()).exp();
  const clipped = ratio.clamp(1 - clipRange, 1 + clipRangeHigher);
  return ratio.mul(fixed).minimum(clipped.mul(fixed)).neg();
}

/** @throws UsageError unless 0 < ε < 1 for the lower ε, and 0 < ε for the upper */
export function requireClipRange(
  where: string,
  { clipRange, clipRangeHigher }: Required<ClippedSurrogateOptions>,
): void {
  if (!(clipRange > 0 && clipRange < 1)) {
    throw new UsageError(`${where}: clipRange must be greater than 0 and less than 1, got ${clipRange}`);
  }
  if (!(Number.isFinite(clipRangeHigher) && clipRangeHigher > 0)) {
    throw new UsageError(
      `${where}: clipRangeHigher must be a finite number greater than 0, got ${clipRangeHigher}`,
    );
  }
}
