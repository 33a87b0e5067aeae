import { UsageError } from "../errors.js";
import type { Generator } from "../generator.js";
import * as create from "../factories.js";
import type { Tensor } from "../tensor.js";
import type { DType } from "../dtype.js";

/** Makes the first value of a parameter of this shape. */
export type Initialiser = (shape: readonly number[], options: { dtype: DType; device: string }) => Tensor;

/** Independent draws from the normal distribution; float32 draws are converted to the parameter's dtype. */
export function normalInitialiser(options: {
  generator: Generator;
  mean?: number;
  std?: number;
}): Initialiser {
  const { generator, mean = 0, std = 1 } = options;
  if (!Number.isFinite(mean) || !Number.isFinite(std) || std < 0) {
    throw new UsageError(
      `normalInitialiser: mean must be finite and std ≥ 0, got mean ${mean} and std ${std}`,
    );
  }
  return (shape, { dtype, device }) =>
    create
      .randn(shape, { generator, dtype: drawType(dtype), device })
      .mul_(std)
      .add_(mean)
      .to({ dtype, device });
}

/** Independent draws from [low, high). */
export function uniformInitialiser(options: {
  generator: Generator;
  low: number;
  high: number;
}): Initialiser {
  const { generator, low, high } = options;
  if (!Number.isFinite(low) || !Number.isFinite(high) || low > high) {
    throw new UsageError(
      `uniformInitialiser: low must be at most high and both finite, got low ${low} and high ${high}`,
    );
  }
  return (shape, { dtype, device }) =>
    create
      .rand(shape, { generator, dtype: drawType(dtype), device })
      .mul_(high - low)
      .add_(low)
      .to({ dtype, device });
}

/** All zeros. */
export const zerosInitialiser: Initialiser = (shape, options) => create.zeros(shape, options);

/** All ones. */
export const onesInitialiser: Initialiser = (shape, options) => create.ones(shape, options);

/** 16-bit parameters start from float32 draws, so that the draws do not depend on the storage type. */
function drawType(dtype: DType): DType {
  return dtype === "float64" ? "float64" : "float32";
}
