/**
 * From a configuration file to the objects of a run, and `train` and `evaluate`. What commands share is in `@astra-rl/assembly/command`.
 *
 * @module @astra-rl/assembly
 */
export * from "./assemble/index.js";
export * from "./configuration/index.js";
export * from "./datasets/index.js";
export * from "./embedded/index.js";
export {
  describeMeasured,
  evaluate,
  StoppedWaitingError,
  train,
  type EvaluationOptions,
  type MeasuredOptions,
  type RunParts,
  type TrainHooks,
  type TrainingRun,
  type TrainOptions,
} from "./run/index.js";
