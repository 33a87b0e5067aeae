import { differentiable } from "../differentiable.js";
import { addon } from "../native.js";
import { requireTensor, wrap } from "../operator-call.js";
import type { Tensor } from "../tensor.js";
import { isLoopable } from "./applicability.js";

/**
 * SwiGLU's gate, silu(gate) · up with silu(x) = x σ(x) (Shazeer 2020, arXiv 2002.05202). One pass on the CPU in float32 and
 * bfloat16, rounded once.
 *
 * @param gate [...]
 * @param up of the same shape and dtype
 * @throws TorchError if they differ
 */
export function swiglu(gate: Tensor, up: Tensor): Tensor {
  requireTensor("swiglu", "gate", gate);
  requireTensor("swiglu", "up", up);
  if (!isLoopable(gate)) return gate.silu().mul(up);
  return differentiable({
    name: "swiglu",
    inputs: [gate, up],
    forward: () => ({
      output: wrap(addon().swiglu(gate.handle, up.handle, null)[0]),
      saved: [gate, up],
    }),
    backward: (gradOutput, [savedGate, savedUp]) =>
      addon().swiglu(savedGate!.handle, savedUp!.handle, gradOutput.handle).map(wrap),
  });
}
