import type { Tensor } from "@astra-rl/torch";

/**
 * The KL to the baseline as a part of a loss, of each token from the sampled one alone: ½·(log π − log ref)². Where tokens were
 * sampled from π, the mean of its gradient, (log π − log ref)·∇log π, is the gradient of KL(π ‖ ref): it pulls the harder, the less
 * the baseline thinks of a token. Its value estimates the KL with a bias, which is small where π and ref are close.
 *
 * Schulman, "Approximating KL Divergence" (2020), where it is k2; on its gradient Liu et al., "Rethinking KL Regularization in
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
 * GRPO's penalty: exp(Δ) − Δ − 1 of each token, with Δ = log ref − log π. As a value it estimates KL(π ‖ ref) without bias where
 * tokens were sampled from π; but the mean of its gradient, (1 − ref/π)·∇log π, is the gradient of KL(ref ‖ π). A token of which the
 * baseline thinks nothing pulls by no more than 1, however far π has gone with it.
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
