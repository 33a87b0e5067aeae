import type { Tensor } from "@astra-rl/torch";

/**
 * KL to the baseline as a loss term, estimated per token from the sampled token: ½·(log π − log ref)². For tokens
 * sampled from π, its expected gradient, E[(log π − log ref)·∇log π], is the gradient of KL(π ‖ ref): the pull is
 * stronger the less likely a token is under the baseline. Its value is a biased estimate of the KL; the bias is small
 * if π and ref are close.
 *
 * Schulman, "Approximating KL Divergence" (2020), k2; on its gradient, Liu et al., "Rethinking KL Regularization in
 * RLHF", arXiv 2510.01555.
 *
 * @param logprobs log π of each token, with a gradient
 * @param baseline log ref, of the same shape; no gradient flows into it
 * @returns the penalty of each token, of the same shape
 */
export function klPenalty(logprobs: Tensor, baseline: Tensor): Tensor {
  return logprobs.sub(baseline.detach()).square().mul(0.5);
}

/**
 * GRPO's penalty per token: exp(Δ) − Δ − 1, with Δ = log ref − log π. Its value is an unbiased estimate of KL(π ‖ ref)
 * for tokens sampled from π; but its expected gradient, E[(1 − ref/π)·∇log π], is the gradient of KL(ref ‖ π). For a
 * token that the baseline finds very unlikely, the factor of ∇log π is at most 1, however far π has moved.
 *
 * Shao et al., "DeepSeekMath", arXiv 2402.03300, equation 4; Schulman's k3.
 *
 * @param logprobs log π of each token, with a gradient
 * @param baseline log ref, of the same shape; no gradient flows into it
 * @returns the penalty of each token, of the same shape
 */
export function grpoKLPenalty(logprobs: Tensor, baseline: Tensor): Tensor {
  const difference = baseline.detach().sub(logprobs);
  return difference.exp().sub(difference).sub(1);
}
