/** Differentiable functions with a backward pass written in TypeScript. */
import { describeValue, TorchError } from "./errors.js";
import { addon } from "./native.js";
import { isTensor, wrap } from "./operator-call.js";
import { isGradEnabled, noGrad, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

export interface DifferentiableFunction {
  /** Begins the messages of errors in the backward pass. */
  name: string;
  /** Everything that a gradient may flow to; null for an optional one that is absent. */
  inputs: readonly (Tensor | null)[];
  /**
   * Computes the output, a new tensor, from the inputs; runs without gradients. `saved` is kept for the backward pass,
   * and freed with the graph.
   */
  forward: () => { output: Tensor; saved: readonly Tensor[] };
  /**
   * The derivative of the final value by each input, in their order and of their shapes and dtypes; null = none. Runs
   * without gradients, in a scope of its own, at most once unless the graph is retained.
   */
  backward: (gradOutput: Tensor, saved: readonly Tensor[]) => readonly (Tensor | null)[];
}

/**
 * Runs a function that knows its own derivative: for a cheaper backward pass than the operators' own would be, or one
 * that computes again what the forward pass did not keep. It can be differentiated once. On the CPU only: elsewhere
 * backward passes run on threads that JavaScript cannot enter.
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
