import { tensor, type Tensor } from "@astra-rl/torch";
import { UsageError, parseOptions } from "@astra-rl/base";
import { preferenceMargin, type PreferenceLogprobs, type MarginLossOptions } from "../preference/index.js";
import { marginLossOptions } from "../preference/preference-options.js";

/**
 * Trajectory balance of pairs: (h − Δ/β)², one value for each pair, [B], where h is the margin over the baseline
 * (`preferenceMargin`) and Δ the difference of the two credits.
 *
 * A generative flow network samples in proportion to a reward R; here log R = log ref + credit/β. Its trajectory balance
 * (log Z + log π − log R)² (Malkin et al., arXiv 2201.13259, equation 9) needs the unknown log Z of each context; the difference of
 * two continuations of one context does not (Stable-GFlowNet, arXiv 2605.00553, contrastive trajectory balance). Zero for all
 * pairs if and only if π ∝ ref · exp(credit/β): the optimum of the KL-regularized return, reached by regression.
 *
 * @throws UsageError without one credit difference for each pair
 */
export function trajectoryBalanceLoss(
  logprobs: PreferenceLogprobs,
  options: Pick<MarginLossOptions, "beta"> = {},
): Tensor {
  const { beta } = parseOptions("trajectoryBalanceLoss", marginLossOptions, options);
  const { chosen, creditGaps } = logprobs;
  const pairs = chosen.shape[0] ?? 0;
  if (creditGaps?.length !== pairs) {
    throw new UsageError(
      "length-mismatch",
      `trajectoryBalanceLoss: needs creditGaps with ${pairs} differences of credit, got ${creditGaps?.length ?? "none"}`,
    );
  }
  const goals = tensor(
    creditGaps.map((gap) => gap / beta),
    { dtype: chosen.dtype, device: chosen.device },
  );
  return preferenceMargin(logprobs).sub(goals).square();
}
