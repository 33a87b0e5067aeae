// Declarations use the types of Node, which a program may compile without.
/// <reference types="node" preserve="true" />
/**
 * What every package shares: errors, keyed random numbers, options, files, texts and addresses. It must not know models, runs or
 * records.
 *
 * @module @astra-rl/base
 */
export {
  AstraError,
  describeValue,
  NotFiniteError,
  OutOfMemoryError,
  TorchError,
  UsageError,
} from "./errors.js";
export { keyedUniform, type DrawKey } from "./keyed-random.js";
export * from "./files/index.js";
export * from "./net/index.js";
export * from "./options/index.js";
export * from "./text/index.js";
export { packageVersion } from "./version.js";
