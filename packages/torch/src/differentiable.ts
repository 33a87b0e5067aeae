/** Differentiable functions with a backward pass written in TypeScript. */
import { describeValue, TorchError } from "@astra-rl/base";
import { addon } from "./native.js";
import { isTensor, wrap } from "./operator-call.js";
import { isGradEnabled, noGrad, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

export interface DifferentiableFunction {
  /** Starts error messages of the backward pass. */
  name: string;
  /** All tensors that gradients may flow to; null for an absent optional one. */
  inputs: readonly (Tensor | null)[];
  /**
   * Computes the output, a new tensor, from the inputs; runs without gradients. `saved` is kept for the backward pass
   * and freed with the graph.
   */
  forward: () => { output: Tensor; saved: readonly Tensor[] };
  /**
   * The gradient of the final value with respect to each input, in the same order, shapes and dtypes; null = none. Runs
   * without gradients, in its own scope, at most once unless the graph is retained.
   */
  backward: (gradOutput: Tensor, saved: readonly Tensor[]) => readonly (Tensor | null)[];
}

/**
 * Runs a function with a custom backward pass, which may be cheaper than that of its operators, or recompute values
 * that the forward pass did not keep. It can be differentiated once. CPU only: on other devices, backward passes run on
 * threads that cannot call JavaScript.
 *
 * @example
 * const cube = (x: Tensor) =>
 *   differentiable({
 *     name: "cube",
 *     inputs: [x],
 *     forward: () => ({ output: x.pow(3), saved: [x] }),
 *     backward: (gradOutput, [saved]) => [saved!.square().mul(3).mul(gradOutput)],
 *   });
 */
export function differentiable({ name, inputs, forward, backward }: DifferentiableFunction): Tensor {
  if (!isGradEnabled()) return scope(() => forward().output);
  return scope(() => {
    const { output, saved } = noGrad(forward);
    if (!inputs.some((input) => input?.requiresGrad)) return output;
    const handleOf = (value: Tensor | null) => {
      if (value === null) return null;
      if (!isTensor(value)) throw new TorchError(`must be a Tensor or null, got ${describeValue(value)}`);
      return value.handle;
    };
    addon().attachFunction(
      name,
      output.handle,
      inputs.map(handleOf),
      saved.map((tensor) => tensor.handle),
      (gradients, savedHandles) =>
        scope(() => {
          const gradOutput = wrap(gradients[0]);
          const savedTensors = savedHandles.map(wrap);
          const results = noGrad(() => backward(gradOutput, savedTensors));
          addon().deliverGradients(results.map(handleOf));
        }),
    );
    return output;
  });
}
