export { evaluate, showEvaluation } from "./evaluate.js";
export { stopOnInterrupt } from "./interruption.js";
export { introduceModels, keepAnswersOf } from "./models.js";
export {
  deviceOption,
  downloadNotes,
  dtypeOption,
  noteHubModel,
  readCommandConfiguration,
  setOption,
  testerOption,
} from "./options.js";
export { Progress, duration } from "./progress.js";
export { inProcesses, processesOption, requireAlone, requireSame } from "./ranks.js";
export { trainFollowed } from "./training.js";
