/** The products of decoding: few rows, so that the reading of weights and of cached keys is their bound. */
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
 * `linear(input, weight, bias)`: input · weightᵀ + bias. Differentiable, on every device and in every type.
 *
 * It is faster than `linear` where no gradient is recorded, at most 64 rows meet a contiguous bfloat16 weight whose
 * inner size is a multiple of 32, and the processor multiplies tiles (Intel AMX): the weight is read once, as it lies.
 * There a row's result does not depend on the rows beside it.
 *
 * @param input [..., in]
 * @param weight [out, in]
 * @param bias [out]
 * @returns [..., out]
 * @throws TorchError where the shapes do not fit
 */
export function decodeLinear(input: Tensor, weight: Tensor, bias: Tensor | null = null): Tensor {
  const where = "decodeLinear";
  const given = bias === null ? null : handle(where, "bias", bias);
  return wrap(
    addon().decodeLinear(
      isGradEnabled(),
      handle(where, "input", input),
      handle(where, "weight", weight),
      given,
    ),
  );
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

/**
 * `target.copy_(source)` without gradients: new values for a weight of a copy that decodes. It is many times faster from
 * float32 into a bfloat16 matrix that is laid out by column, which is how `decodeLinear` reads a weight stored [in, out].
 *
 * @throws TorchError where `source` cannot be broadcast to the shape of `target`
 */
export function copyWeight(target: Tensor, source: Tensor): void {
  addon().copyWeight(handle("copyWeight", "target", target), handle("copyWeight", "source", source));
}
