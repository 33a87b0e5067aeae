/**
 * Operators that compute in one call, and on a GPU in one launch, what otherwise takes several, but that only later versions of
 * libtorch have: null where the loaded one has not. The caller then composes the same of other operators.
 */
import { call } from "./exchange.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import { RMS_NORM } from "./operators.generated.js";
import type { Tensor } from "./tensor.js";

let hasRmsNorm: boolean | undefined;

/**
 * Root-mean-square norm over the last dimension (Zhang & Sennrich 2019, arXiv 1910.07467), from libtorch 2.4 on.
 *
 * @param input [..., D]
 * @param weight [D], in the type of the input
 */
export function rmsNorm(input: Tensor, weight: Tensor, epsilon: number): Tensor | null {
  hasRmsNorm ??= addon().hasOperator(RMS_NORM);
  if (!hasRmsNorm) return null;
  return wrap(call(RMS_NORM, input.handle, [input.size(-1)], weight.handle, epsilon));
}
