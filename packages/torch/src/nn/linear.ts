import { UsageError } from "../errors.js";
import type { DType } from "../dtype.js";
import type { Generator } from "../generator.js";
import { linear } from "../operators.js";
import type { Tensor } from "../tensor.js";
import { uniformInitialiser, type Initialiser } from "./initialisers.js";
import { checkSize } from "./check-size.js";
import { Module } from "./module.js";

/** Options of {@link Linear}: either `generator` or both initial values must be given. */
export interface LinearOptions {
  /** Draws the initial values from U(−1/√inputs, 1/√inputs), as PyTorch does. */
  generator?: Generator;
  /** First value of the weight, instead of the draw. */
  weight?: Initialiser;
  /** First value of the bias, instead of the draw; false for no bias. */
  bias?: Initialiser | boolean;
  /** Default float32. */
  dtype?: DType;
  /** Default "cpu". */
  device?: string;
}

/** y = x Wᵀ + b. */
export class Linear extends Module {
  /** [outputs, inputs] */
  readonly weight: Tensor;
  /** [outputs]; null without bias. */
  readonly bias: Tensor | null;

  /** @throws UsageError when a size is not a positive integer, or there is nothing to draw initial values from. */
  constructor(inputs: number, outputs: number, options: LinearOptions = {}) {
    super();
    checkSize("Linear inputs", inputs);
    checkSize("Linear outputs", outputs);
    const { generator, weight, bias = true, dtype = "float32", device = "cpu" } = options;
    const bound = 1 / Math.sqrt(inputs);
    const drawn =
      generator === undefined ? null : uniformInitialiser({ generator, low: -bound, high: bound });
    const initialWeight = weight ?? drawn;
    const initialBias = bias === true ? drawn : bias === false ? false : bias;
    if (initialWeight === null || initialBias === null) {
      throw new UsageError("Linear: give a seeded generator, or initialisers for the weight and the bias");
    }
    this.weight = this.registerParameter("weight", initialWeight([outputs, inputs], { dtype, device }));
    this.bias =
      initialBias === false
        ? null
        : this.registerParameter("bias", initialBias([outputs], { dtype, device }));
  }

  /** [..., inputs] → [..., outputs] */
  forward(input: Tensor): Tensor {
    return this.bias === null ? linear(input, this.weight) : linear(input, this.weight, this.bias);
  }
}
