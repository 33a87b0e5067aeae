import type { Tensor } from "@astra-rl/torch";

/**
 * The policy gradient as a loss per token: −A · log π, whose gradient is −A ∇log π.
 *
 * Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning" (1992); with A
 * the advantage it is the actor loss of A2C, Mnih et al., arXiv 1602.01783, section 4.
 *
 * @param logprobs log π of each token, with a gradient
 * @param advantages of the same shape; no gradient flows into them
 * @returns the loss of each token, of the same shape
 */
export function logProbabilityLoss(logprobs: Tensor, advantages: Tensor): Tensor {
  return logprobs.mul(advantages.detach()).neg();
}
