import type { DType } from "./dtype.js";
import type { Tensor } from "./tensor.js";

/** The tensor in another type, or itself: no copy where there is nothing to change. Differentiable. */
export function cast(tensor: Tensor, dtype: DType): Tensor {
  return tensor.dtype === dtype ? tensor : tensor.to(dtype);
}
