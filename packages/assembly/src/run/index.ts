export { evaluate, evaluateSystem, type EvaluationOptions, type EvaluateSystemOptions } from "./evaluate.js";
export { introduceModels, keepAnswersOf, noteHubModel, noteHubModels } from "./models.js";
export type { RunParts } from "./read-program.js";
export { requireSame } from "./require-same.js";
export { describeMeasured, type MeasuredOptions } from "./run-record.js";
export { spendingNotes, spendingNotesOfRanks } from "./servers.js";
export {
  train,
  trainSystem,
  type TrainHooks,
  type TrainingRun,
  type TrainOptions,
  type TrainSystemOptions,
} from "./train.js";
export { StoppedWaitingError } from "./waiting.js";
