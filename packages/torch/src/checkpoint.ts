/** Gradient checkpointing: a step keeps its inputs only, and runs once more when it is differentiated. */
import { grad } from "./autograd.js";
import { differentiable } from "./differentiable.js";
import { TorchError } from "./errors.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import { enableGrad, isGradEnabled, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

/**
 * `run(...inputs)` without keeping what lies between inputs and result: the backward pass runs it again. Values and
 * gradients are those of the plain call, random draws included (dropout draws the same mask twice); memory is traded
 * for a second forward pass (Chen et al. 2016, arXiv 1604.06174).
 *
 * The result is an ordinary tensor: `backward`, `grad` and further operators take it as any other. Its gradients cannot
 * be differentiated in turn.
 *
 * @param run must give the same result each time: a new tensor, no view of another. Tensors that it reads are either
 * `inputs` or owned by somebody until the backward pass (parameters); what a scope frees in between must be an input
 * @param inputs kept until the backward pass; they must not be changed in place before it
 * @param parameters every other tensor that `run` reads and that is to get a gradient: those left out get none
 * @throws TorchError where the result is not on the CPU: backward passes of other devices run on threads that
 * JavaScript cannot enter
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

/** Runs `body` with the generator in an earlier state, and leaves the generator as it was found. */
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
