import { describeValue, TorchError } from "./errors.js";
import { addon } from "./native.js";
import { isTensor, wrap } from "./operator-call.js";
import { isGradEnabled } from "./scope.js";
import type { Tensor } from "./tensor.js";

function handle(where: string, name: string, value: unknown): number {
  if (!isTensor(value))
    throw new TorchError(`${where}: ${name} must be a Tensor, got ${describeValue(value)}`);
  return value.handle;
}

/**
 * Attention of one new token a row, softmax(q kᵀ · scale + bias) v, in one pass over bfloat16 keys and values on the
 * CPU, with scores and sums in float32.
 *
 * @param query [B, H, 1, E]
 * @param key [B, G, S, E], G divides H: query head h reads key/value head ⌊h / (H/G)⌋
 * @param value [B, G, S, E]
 * @param bias [B·G or 1, H/G or 1, S], added to the scores
 * @returns [B, 1, H·E], or null where this is not the case: gradients, another type or device, other shapes
 */
export function decodeAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  bias: Tensor | null,
  scale: number,
): Tensor | null {
  const where = "decodeAttention";
  const result = addon().decodeAttention(
    isGradEnabled(),
    handle(where, "query", query),
    handle(where, "key", key),
    handle(where, "value", value),
    bias === null ? null : handle(where, "bias", bias),
    scale,
  );
  return result === null ? null : wrap(result);
}
