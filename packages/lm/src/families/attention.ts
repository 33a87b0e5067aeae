import { full, type DType, type Tensor } from "@astra-rl/torch";

/**
 * What forbids a score. Not −∞: a row that may attend to nothing (padding) must give finite values, and the sum of
 * two of these must stay inside float16.
 */
function forbidden(dtype: DType): number {
  return dtype === "float16" ? -3e4 : -1e30;
}

/**
 * The additive form of an attention mask, made once a forward pass and shared by all layers.
 *
 * @param mask bool [B or 1, 1, T, S], true = may attend; null = causal among T new tokens
 * @returns dtype [B or 1, 1, T, S], 0 where a token may attend; null where everything may be attended to
 */
export function attentionBias(
  mask: Tensor | null,
  newTokens: number,
  options: { dtype: DType; device: string },
): Tensor | null {
  const { dtype, device } = options;
  if (mask === null) {
    if (newTokens === 1) return null;
    return full([newTokens, newTokens], forbidden(dtype), { dtype, device })
      .triu(1)
      .view([1, 1, newTokens, newTokens]);
  }
  return full(mask.shape, 0, { dtype, device }).maskedFill(mask.logicalNot(), forbidden(dtype));
}

/**
 * Scaled dot-product attention, softmax(q kᵀ · scale + bias) v, with query heads that may share keys and values
 * (grouped-query attention: query head h reads key/value head ⌊h / (H/G)⌋; Ainslie et al. 2023, arXiv 2305.13245).
 *
 * Plain products, because libtorch 1.13 has no stable fused operator.
 *
 * @param query [B, H, T, E]
 * @param key [B, G, S, E], G divides H
 * @param value [B, G, S, E]
 * @param bias as {@link attentionBias} gives it
 * @returns [B, T, H·E]
 */
export function attend(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  bias: Tensor | null,
  scale: number,
): Tensor {
  const [batch, heads, length, size] = query.shape as [number, number, number, number];
  const [, groups, columns] = key.shape as [number, number, number, number];
  const shared = heads / groups;
  // Query heads of one group become rows of one product: [B, G, (H/G)·T, E], so that keys are never repeated.
  const grouped = query.mul(scale).reshape([batch, groups, shared * length, size]);
  let scores = grouped.matmul(key.transpose(-2, -1));
  if (bias !== null) {
    scores = scores
      .view([batch, groups, shared, length, columns])
      .add(bias.unsqueeze(1)) // [B or 1, 1, 1, T, S]
      .view([batch, groups, shared * length, columns]);
  }
  return scores
    .softmax(-1)
    .matmul(value)
    .view([batch, heads, length, size])
    .transpose(1, 2)
    .reshape([batch, length, heads * size]);
}
