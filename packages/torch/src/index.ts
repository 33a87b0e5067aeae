/**
 * @module @astra-rl/torch: tensors, operators, autograd and memory over libtorch.
 * It must not know text, models by name, or reward.
 */
export { AstraError, describeValue, TorchError, UsageError } from "./errors.js";
export { bytesOf, isDType, type Device, type DType, type TypedArray } from "./dtype.js";
