export { AstraError, TorchError, UsageError } from "@astra-rl/torch";
export * from "./core/index.js";
