/**
 * Trains a tester language model to find likely probes that make a target misbehave, and evaluates targets with it: systems,
 * samplers, scorers, rewards, credits, algorithms, trainers, evaluators and records.
 *
 * @module astra-rl
 */
export { AstraError, TorchError, UsageError } from "@astra-rl/torch";
export * from "./algorithm/index.js";
export * from "./core/index.js";
export * from "./credit/index.js";
export * from "./datasets/index.js";
export * from "./embedder/index.js";
export * from "./evaluation/index.js";
export * from "./records/index.js";
export * from "./sampler/index.js";
export * from "./scorer/index.js";
export * from "./http/index.js";
export * from "./kinds/index.js";
export * from "./models/index.js";
export * from "./options/index.js";
export * from "./reward/index.js";
export * from "./system/index.js";
export * from "./text/index.js";
export * from "./tester/index.js";
export * from "./deprecated-names.js";
export * from "./training/index.js";
export * from "./configuration/index.js";
export * from "./report/index.js";
export * from "./run/index.js";
export * from "./assembly/index.js";
