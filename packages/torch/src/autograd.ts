/** Gradients with respect to given inputs, without touching anybody's `grad`. */
import { describeValue, TorchError } from "./errors.js";
import { addon } from "./native.js";
import { isTensor, wrap } from "./operator-call.js";
import type { Tensor } from "./tensor.js";

export interface GradOptions {
  /** Derivatives of the final value by each output; null stands for 1, where the output has one element. */
  gradOutputs?: Tensor | readonly (Tensor | null)[];
  /** Default: false. Whether an input that no output depends on gives null instead of an error. */
  allowUnused?: boolean;
  /** Default: the value of createGraph. Whether the graph may be used again. */
  retainGraph?: boolean;
  /** Default: false. Whether the gradients can be differentiated in turn. */
  createGraph?: boolean;
}

function handles(where: string, value: unknown): number[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map((item) => {
    if (!isTensor(item)) throw new TorchError(`grad: ${where} must be Tensors, got ${describeValue(item)}`);
    return item.handle;
  });
}

/** The derivative of the sum of `outputs` by each of `inputs`. */
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
