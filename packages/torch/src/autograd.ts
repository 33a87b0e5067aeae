/** Gradients with respect to given inputs, without accumulating into `grad`. */
import { describeValue, TorchError } from "@astra-rl/base";
import { addon } from "./native.js";
import { isTensor, wrap } from "./operator-call.js";
import type { Tensor } from "./tensor.js";

export interface GradOptions {
  /** Gradient of the final value with respect to each output; null = 1, for outputs with one element. */
  gradOutputs?: Tensor | readonly (Tensor | null)[];
  /** Whether an input that no output depends on gives null instead of an error. Default: false. */
  allowUnused?: boolean;
  /** Whether the graph may be used again. Default: the value of createGraph. */
  retainGraph?: boolean;
  /** Whether the gradients can be differentiated again. Default: false. */
  createGraph?: boolean;
}

function handles(where: string, value: unknown): number[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map((item) => {
    if (!isTensor(item)) throw new TorchError(`grad: ${where} must be Tensors, got ${describeValue(item)}`);
    return item.handle;
  });
}

/** The gradient of the sum of `outputs` with respect to each of `inputs`. */
export function grad(
  outputs: Tensor | readonly Tensor[],
  inputs: Tensor | readonly Tensor[],
  options: GradOptions = {},
): (Tensor | null)[] {
  const { gradOutputs, allowUnused = false, createGraph = false, retainGraph = createGraph } = options;
  const outputHandles = handles("outputs", outputs);
  const given = gradOutputs === undefined ? outputHandles.map(() => null) : [gradOutputs].flat();
  const results = addon().gradients(
    outputHandles,
    handles("inputs", inputs),
    given.map((item: Tensor | null) => (item === null ? null : (handles("gradOutputs", item)[0] as number))),
    retainGraph,
    createGraph,
    allowUnused,
  );
  return results.map((handle) => (handle === null ? null : wrap(handle)));
}
