export { evaluationProgress, showEvaluation } from "./show-evaluation.js";
export { stopOnInterrupt, untilInterrupted } from "./interruption.js";
export {
  acceptCanaryOption,
  acceptDoubtsOption,
  deviceOption,
  downloadNotes,
  dtypeOption,
  loggerOf,
  readCommandConfiguration,
  setOption,
  testerOption,
  testerOverride,
} from "./options.js";
export { Progress, duration } from "./progress.js";
export { inProcesses, processesOption, requireAlone } from "./ranks.js";
export { trainFollowed, trainsTarget, type Following } from "./training.js";
export {
  askCanary,
  endJournal,
  endSessions,
  evaluateSystem,
  figuresWithoutRollouts,
  forgetSessions,
  introduceModels,
  keepAnswersOf,
  noteHubModel,
  prepareEvaluation,
  requireSame,
  serverRecord,
  spendingNotes,
  spendingNotesOfRanks,
  stoppedLine as stoppedEvaluationLine,
  trainSystem,
  untilStopped,
  withCanary,
  withDoubtsOfCalls,
  withHarmlessControl,
  withSpending,
} from "../run/index.js";
export { readScorerSpec } from "./scorer-spec.js";
