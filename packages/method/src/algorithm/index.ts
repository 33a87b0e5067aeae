export { WIDE_TREES } from "./elicitation-defaults.js";
export { Algorithm, type LearningRateGroup, type StepResult, type StopRule } from "./algorithm.js";
export * from "./losses/index.js";
export * from "./policy-gradient/index.js";
export * from "./preference/index.js";
