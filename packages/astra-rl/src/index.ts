export { AstraError, TorchError, UsageError } from "@astra-rl/torch";
export * from "./algorithm/index.js";
export * from "./core/index.js";
export * from "./datasets/index.js";
export * from "./evaluation/index.js";
export * from "./records/index.js";
export * from "./sampler/index.js";
export * from "./scorer/index.js";
export * from "./system/index.js";
