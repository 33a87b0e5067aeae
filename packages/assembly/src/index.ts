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
  modelFormats,
  StoppedWaitingError,
  train,
  withSettled,
  withToday,
  writeResolvedConfiguration,
  type EvaluationOptions,
  type LoadedRun,
  type MeasuredOptions,
  type ModelFormats,
  type RunParts,
  type TrainHooks,
  type TrainingRun,
  type TrainOptions,
} from "./run/index.js";
