import { addon } from "../native.js";
import { requireTensor, wrap } from "../operator-call.js";
import { noGrad } from "../scope.js";
import type { Tensor } from "../tensor.js";
import { isLoopable } from "./applicability.js";

/**
 * The k largest numbers of each row in descending order, with their indices; ties keep their order in the row. NaN
 * counts as the largest. Not differentiable.
 *
 * On the CPU in float32 and bfloat16 it is several times faster than `topk`, and among numbers equal to the smallest
 * one selected it takes the first; elsewhere that choice is libtorch's.
 *
 * @param input [rows, numbers]
 * @param k 1 … numbers
 * @returns values in the input's dtype and int64 indices, both [rows, k]
 */
export function sortedTopK(input: Tensor, k: number): { values: Tensor; indices: Tensor } {
  requireTensor("sortedTopK", "input", input);
  if (isLoopable(input)) {
    const [values, indices] = addon().sortedTopK(input.handle, k).map(wrap) as [Tensor, Tensor];
    return { values, indices };
  }
  return noGrad(() => {
    const [, unordered] = input.topk(k, -1, true, false);
    const [ascending] = unordered.sort(-1);
    const [values, order] = input.gather(1, ascending).sort({ stable: true, dim: -1, descending: true });
    return { values, indices: ascending.gather(1, order) };
  });
}
