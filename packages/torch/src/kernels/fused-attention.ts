import { describeValue, TorchError } from "@astra-rl/base";
import { differentiable } from "../differentiable.js";
import { addon } from "../native.js";
import { isTensor, wrap } from "../operator-call.js";
import { isGradEnabled } from "../scope.js";
import type { Tensor } from "../tensor.js";

/**
 * Attention, softmax(q kᵀ · scale + bias) v, in float32, and in bfloat16 on processors with AMX tiles or AVX512-BF16
 * pairs, with scores, weights and sums in float32. Differentiable with respect to query, key and value (Dao 2023, arXiv
 * 2307.08691). The weights [T, S] are never stored: the backward pass recomputes them. Blocks of 32 queries × 32 keys
 * that are fully masked are skipped.
 *
 * A row's result depends neither on other rows nor on the number of threads. A row that may attend to nothing gives 0,
 * with zero gradients.
 *
 * @param query [B, H, T, E], E ≤ 256; in float32 a multiple of 16
 * @param key [B, G, S, E], G divides H: query head h reads key/value head ⌊h / (H/G)⌋
 * @param value [B, G, S, E]
 * @param biases none; or one, [B·G or 1, (H/G)·T or 1, S], added to the scores, where at most −1e29 = masked; or one
 * per packed sequence, each with as many columns as its sequence has tokens
 * @returns [B, T, H·E], or null if the kernel does not apply: another dtype, device or processor, other shapes, a bias
 * that requires a gradient
 */
export function fusedAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  biases: readonly Tensor[],
  scale: number,
): Tensor | null {
  const name = "fusedAttention";
  for (const given of [query, key, value, ...biases]) {
    if (!isTensor(given)) throw new TorchError(`${name}: expected a Tensor, got ${describeValue(given)}`);
  }
  if (isGradEnabled() && biases.some((bias) => bias.requiresGrad)) return null;
  const handles = (tensors: readonly Tensor[]) => tensors.map((tensor) => tensor.handle);
  const results = addon().fusedAttention(query.handle, key.handle, value.handle, handles(biases), scale);
  if (results === null) return null;
  return differentiable({
    name,
    inputs: [query, key, value],
    forward: () => {
      const [output, measures] = results.map(wrap) as [Tensor, Tensor];
      return { output, saved: [query, key, value, output, measures, ...biases] };
    },
    backward: (gradOutput, saved) => {
      const [q, k, v, output, measures, ...own] = handles(saved) as [number, number, number, number, number];
      return addon()
        .fusedAttentionBackward(q, k, v, own, scale, output, measures, gradOutput.handle)
        .map(wrap);
    },
  });
}
