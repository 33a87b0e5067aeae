// Experience → batches → optimizer steps, logs and checkpoints. Must not know: which algorithm computes the loss,
// which models the system uses, how evaluations measure.
export { Callbacks, type StepValues, type TrainingCallback, type TrainingControl } from "./callbacks.js";
export { CheckpointCallback, type TokenTeller } from "./checkpoint-callback.js";
export { EarlyStopping, type EarlyStoppingOptions } from "./early-stopping.js";
export { EvaluationCallback, type EvaluationReport, type TrainingEvaluation } from "./evaluation-callback.js";
export { Experience, type ExperienceBatch, type ExperienceFields } from "./experience.js";
export { Harness, type HarnessOptions, type HarnessState } from "./harness.js";
export {
  HFASTConfiguration,
  trainingSection,
  type HFASTConfigurationOptions,
} from "./hf-ast-configuration.js";
export { HFASTTrainer, type HFASTTrainerOptions } from "./hf-ast-trainer.js";
export * from "./loggers/index.js";
export type { Accumulated } from "./ranks.js";
export { Trainer } from "./trainer.js";
export type { TrainerOptions } from "./trainer-options.js";
export { computeTypesOf, restoreTester } from "./trainer-state.js";
export type { UpdateTotals } from "./step-values.js";
export type { Logger, Progress } from "./trainer-hooks.js";
export {
  HarmWatch,
  ProgressWatch,
  RareWatch,
  RunWatches,
  TRENDS,
  TrendWatch,
  WARNING_RULES,
  WindowWatch,
  type Change,
  type Comparison,
  type RunWatchesOptions,
  type Trend,
  type Watch,
  type WatchedValues,
} from "./watch/index.js";
export { TrainingConfiguration, type TrainingConfigurationOptions } from "./training-configuration.js";
