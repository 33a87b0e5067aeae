import { differentiable } from "../differentiable.js";
import { addon } from "../native.js";
import { wrap } from "../operator-call.js";
import { scope } from "../scope.js";
import type { Tensor } from "../tensor.js";
import { isLoopable } from "./applicability.js";
import { softmaxEntropy } from "./softmax-entropy.js";

/**
 * `logits.logSoftmax(-1, dtype)` at selected indices only: log-probabilities of chosen tokens, logit − log Σ
 * exp(logits). Differentiable (only once for float32 results on the CPU). For float32 and bfloat16 logits on the CPU,
 * neither pass allocates a tensor of the logits' size except their gradient; sums are in float32.
 *
 * @param logits [rows, vocabulary]
 * @param indices int64 [chosen], row · vocabulary + token; indices may repeat
 * @returns dtype [chosen]
 */
export function selectiveLogSoftmax(logits: Tensor, indices: Tensor, dtype: "float32" | "float64"): Tensor {
  if (!isFused(logits, dtype)) {
    return logits.logSoftmax(-1, dtype).view([-1]).indexSelect(0, indices);
  }
  return differentiable({
    name: "selectiveLogSoftmax",
    inputs: [logits],
    forward: () => {
      const [values, normalisers] = addon().selectiveLogSoftmax(logits.handle, indices.handle).map(wrap);
      return { output: values!, saved: [logits, indices, normalisers!] };
    },
    backward: (gradOutput, [saved, chosen, normalisers]) => [
      wrap(
        addon().selectiveLogSoftmaxBackward(
          saved!.handle,
          chosen!.handle,
          normalisers!.handle,
          gradOutput.handle,
        ),
      ),
    ],
  });
}

/**
 * `selectiveLogSoftmax` and the entropy of every row's full distribution (see `softmaxEntropy`). Log-probabilities are
 * bitwise the same; on the CPU no further tensor of the logits' size is kept for the backward pass.
 *
 * @returns dtype [chosen] and [rows]
 */
export function selectiveLogSoftmaxWithEntropy(
  logits: Tensor,
  indices: Tensor,
  dtype: "float32" | "float64",
): { logprobs: Tensor; entropy: Tensor } {
  if (isFused(logits, dtype)) {
    return { logprobs: selectiveLogSoftmax(logits, indices, dtype), entropy: softmaxEntropy(logits, dtype) };
  }
  return scope(() => {
    // The entropy reuses the tensor that log-softmax keeps for its own backward pass.
    const all = logits.logSoftmax(-1, dtype);
    return { logprobs: all.view([-1]).indexSelect(0, indices), entropy: softmaxEntropy(all, dtype) };
  });
}

/** Whether the kernel applies that allocates nothing of the logits' size. */
function isFused(logits: Tensor, dtype: "float32" | "float64"): boolean {
  return isLoopable(logits) && dtype === "float32";
}
