export { AstraError, TorchError, UsageError } from "./errors.js";
