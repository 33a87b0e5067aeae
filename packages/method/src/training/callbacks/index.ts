export { Callbacks, type StepValues, type TrainingCallback, type TrainingControl } from "./callbacks.js";
export { CheckpointCallback } from "./checkpoint-callback.js";
export { EarlyStopping, type EarlyStoppingOptions } from "./early-stopping.js";
export { EvaluationCallback, type EvaluationReport, type TrainingEvaluation } from "./evaluation-callback.js";
export { RunWatches, type RunWatchesOptions } from "./run-watches.js";
