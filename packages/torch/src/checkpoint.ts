/** Gradient checkpointing: stores only the inputs of a function and runs it again in the backward pass. */
import { TorchError } from "@astra-rl/base";
import { grad } from "./autograd.js";
import { differentiable } from "./differentiable.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import { enableGrad, isGradEnabled, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

/**
 * Computes `run(...inputs)` without keeping intermediate values: the backward pass runs it again. Values and gradients
 * equal those of a plain call, including random draws (dropout uses the same mask twice). This trades memory for a
 * second forward pass (Chen et al. 2016, arXiv 1604.06174).
 *
 * The result is an ordinary tensor for `backward`, `grad` and other operators. Its gradients cannot be differentiated
 * again.
 *
 * @param run must return the same result each time: a new tensor, not a view. Every tensor it uses must be an input or
 * stay alive until the backward pass (parameters); tensors that a scope frees before must be inputs
 * @param inputs kept until the backward pass; they must not be changed in place before it
 * @param parameters all other tensors used by `run` that need gradients; tensors not listed get none
 * @throws TorchError if the result is not on the CPU: backward passes on other devices run on threads that cannot call
 * JavaScript
 */
export function checkpoint(
  run: (...inputs: Tensor[]) => Tensor,
  inputs: readonly Tensor[],
  parameters: Iterable<Tensor> = [],
): Tensor {
  const trained = [...new Set(parameters)].filter((parameter) => parameter.requiresGrad);
  const needs = inputs.map((input) => input.requiresGrad);
  if (!isGradEnabled() || (trained.length === 0 && !needs.includes(true))) return run(...inputs);
  return differentiable({
    name: "checkpoint",
    inputs: [...inputs, ...trained],
    forward: () => {
      const random = wrap(addon().generatorState(null));
      const output = scope(() => run(...inputs));
      if (output.device !== "cpu") {
        throw new TorchError(`checkpoint: works on the device "cpu" only, got ${output.device}`);
      }
      return { output, saved: [random, ...inputs] };
    },
    backward: (gradOutput, [random, ...saved]) => {
      saved.forEach((input, at) => input.requiresGrad_(needs[at]));
      const output = drawingFrom(random!, () => enableGrad(() => scope(() => run(...saved))));
      const wanted = [...saved, ...trained];
      const active = wanted.filter((tensor) => tensor.requiresGrad);
      const found = grad(output, active, { gradOutputs: gradOutput, allowUnused: true });
      const gradients = new Map(active.map((tensor, at) => [tensor, found[at] ?? null]));
      return wanted.map((tensor) => gradients.get(tensor) ?? null);
    },
  });
}

/** Runs `body` with the generator in an earlier state, then restores the generator. */
function drawingFrom<T>(random: Tensor, body: () => T): T {
  const native = addon();
  const present = wrap(native.generatorState(null));
  native.setGeneratorState(null, random.handle);
  try {
    return body();
  } finally {
    native.setGeneratorState(null, present.handle);
  }
}
