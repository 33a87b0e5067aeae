import type { Device, DType } from "../dtype.js";

/** A tensor, or a model by what it computes in. */
export interface Placed {
  readonly device: Device;
  readonly dtype: DType;
}

/*
 * Where this package's own kernels apply, for callers that prepare something for them: a layout, indices, another type.
 * The kernels themselves ask nobody; where they do not apply they return null or leave the work to libtorch.
 */

/** Whether loops of our own read such numbers: those that are one pass over memory, for either type. */
export const isLoopable = ({ device, dtype }: Placed): boolean =>
  device === "cpu" && (dtype === "bfloat16" || dtype === "float32");

/** Whether {@link decodeAttention} reads columns that rows share once for all of them. */
export const readsSharedColumns = isLoopable;

/** Whether libtorch's own products of such numbers may add up in their narrow type. */
export const addsUpNarrowly = ({ device, dtype }: Placed): boolean =>
  device === "cpu" && dtype === "bfloat16";

/** Whether the host can look at results without waiting for a queue of work. */
export const isReadAtOnce = (device: Device): boolean => device === "cpu";
