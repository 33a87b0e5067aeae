export {
  endJournal,
  evaluate,
  evaluateSystem,
  prepareEvaluation,
  stoppedLine,
  type EvaluationOptions,
  type EvaluateSystemOptions,
} from "./evaluate.js";
export { introduceModels, keepAnswersOf, noteHubModel, noteHubModels } from "./models.js";
export type { RunParts } from "./read-program.js";
export { modelFormats, withToday, type ModelFormats } from "./model-formats.js";
export { requireSame } from "./require-same.js";
export { withSettled, writeResolvedConfiguration } from "./resolved-configuration.js";
export { describeMeasured, type MeasuredOptions } from "./run-record.js";
export { askCanary, figuresWithoutRollouts, withCanary, withHarmlessControl } from "./canary.js";
export { endSessions, forgetSessions, sessionNotes, withDoubtsOfCalls } from "./agents.js";
export { serverRecord, spendingNotes, spendingNotesOfRanks, withSpending } from "./servers.js";
export {
  train,
  trainSystem,
  type LoadedRun,
  type TrainHooks,
  type TrainingRun,
  type TrainOptions,
  type TrainSystemOptions,
} from "./train.js";
export { StoppedError, StoppedWaitingError, untilStopped } from "./waiting.js";
export { checkWindows } from "./windows.js";
