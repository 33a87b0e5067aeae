/**
 * Adaptive stress testing of language models: conversation trees, systems, samplers, rewards, algorithms, training and
 * evaluation. It must not know servers, reports, configuration files or the command line.
 *
 * @module @astra-rl/method
 */
export * from "./tree/index.js";
export * from "./models/index.js";
export * from "./scorer/index.js";
export * from "./reward/index.js";
export * from "./system/index.js";
export * from "./sampler/index.js";
export * from "./algorithm/index.js";
export * from "./evaluation/index.js";
export * from "./training/index.js";
export * from "./kinds/index.js";
export * from "./deprecated-names.js";
