import { differentiable } from "./differentiable.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import type { Tensor } from "./tensor.js";

/**
 * `logits.logSoftmax(-1, dtype)` at some places only: log-probabilities of chosen tokens, logit − log Σ exp(logits).
 * Differentiable (once, from bfloat16
 * on the CPU). From bfloat16 logits on the CPU neither pass makes anything of the logits' size but their gradient;
 * sums are in float32.
 *
 * @param logits [rows, vocabulary]
 * @param indices int64 [chosen], row · vocabulary + token; a place may be chosen more than once
 * @returns dtype [chosen]
 */
export function selectiveLogSoftmax(logits: Tensor, indices: Tensor, dtype: "float32" | "float64"): Tensor {
  if (logits.device !== "cpu" || logits.dtype !== "bfloat16" || dtype !== "float32") {
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
