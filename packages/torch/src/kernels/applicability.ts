import type { Device, DType } from "../dtype.js";

/** Device and dtype of a tensor, or of a model's computations. */
export interface Placed {
  readonly device: Device;
  readonly dtype: DType;
}

/*
 * Where this package's own kernels apply, for callers that prepare inputs for them: a layout, indices, another dtype.
 * The kernels do not depend on these checks: where they do not apply, they return null or fall back to libtorch.
 */

/** Whether our single-pass loops over memory support this device and dtype. */
export const isLoopable = ({ device, dtype }: Placed): boolean =>
  device === "cpu" && (dtype === "bfloat16" || dtype === "float32");

/** Whether {@link decodeAttention} processes shared columns once for all rows. */
export const readsSharedColumns = isLoopable;

/** Whether libtorch's own products may accumulate in this narrow dtype. */
export const addsUpNarrowly = ({ device, dtype }: Placed): boolean =>
  device === "cpu" && dtype === "bfloat16";

/** Whether the host can read results without synchronizing with a device queue. */
export const isReadAtOnce = (device: Device): boolean => device === "cpu";

/** Whether a result costs by its calls rather than by its arithmetic, so that one operator is preferred to several. */
export const isBoundByCalls = (device: Device): boolean => device !== "cpu";
