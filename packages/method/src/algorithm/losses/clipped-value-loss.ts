import type { Tensor } from "@astra-rl/torch";

/**
 * Squared error of values per token, (V − R)²; with a range, the maximum of that and (clip(V, V_old ± range) − R)²,
 * which removes the incentive to move a value by more than the range in one experience.
 *
 * Schulman et al., "Proximal Policy Optimization Algorithms", arXiv 1707.06347, equation 9 (without the factor ½ of
 * some libraries). The clipping is not in the paper but in the authors' code (openai/baselines, ppo2).
 *
 * @param values V of each token, with a gradient
 * @param old values before the experience's updates, of the same shape
 * @param returns R of each token, of the same shape; no gradient flows into them
 * @param range how far V may move from V_old; 0 for no clipping
 * @returns the loss of each token, of the same shape
 */
export function clippedValueLoss(values: Tensor, old: Tensor, returns: Tensor, range = 0): Tensor {
  const goal = returns.detach();
  const plain = values.sub(goal).square();
  if (range === 0) return plain;
  const before = old.detach();
  const clipped = before.add(values.sub(before).clamp(-range, range));
  return plain.maximum(clipped.sub(goal).square());
}
