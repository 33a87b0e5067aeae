import type { DType } from "./dtype.js";
import type { Tensor } from "./tensor.js";

/** The tensor in another dtype; returns the same tensor, without a copy, if the dtype is unchanged. Differentiable. */
export function cast(tensor: Tensor, dtype: DType): Tensor {
  return tensor.dtype === dtype ? tensor : tensor.to(dtype);
}
