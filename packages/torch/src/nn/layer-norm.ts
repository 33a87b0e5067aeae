import type { DType } from "../dtype.js";
import { layerNorm } from "../operators.js";
import type { Tensor } from "../tensor.js";
import { checkSize } from "./check-size.js";
import { onesInitialiser, zerosInitialiser } from "./initialisers.js";
import { Module } from "./module.js";

/** Options of {@link LayerNorm}. */
export interface LayerNormOptions {
  /** Added to the variance. Default 1e-5. */
  epsilon?: number;
  /** Default float32. */
  dtype?: DType;
  /** Default "cpu". */
  device?: string;
}

/** Layer normalisation over the last dimension, with a learned scale (starts at 1) and shift (starts at 0). */
export class LayerNorm extends Module {
  /** [size] */
  readonly weight: Tensor;
  /** [size] */
  readonly bias: Tensor;
  private readonly size: number;
  private readonly epsilon: number;

  /** @throws UsageError when the size is not a positive integer. */
  constructor(size: number, options: LayerNormOptions = {}) {
    super();
    checkSize("LayerNorm size", size);
    const { epsilon = 1e-5, dtype = "float32", device = "cpu" } = options;
    this.size = size;
    this.epsilon = epsilon;
    this.weight = this.registerParameter("weight", onesInitialiser([size], { dtype, device }));
    this.bias = this.registerParameter("bias", zerosInitialiser([size], { dtype, device }));
  }

  /** [..., size] → [..., size] */
  forward(input: Tensor): Tensor {
    return layerNorm(input, [this.size], this.weight, this.bias, this.epsilon);
  }
}
