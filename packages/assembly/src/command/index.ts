export { runProgram, setProgram, trainArguments } from "./child.js";
export { evaluate, showEvaluation } from "./evaluate.js";
export { EXIT, EndedTogetherError, NoVerdictError, explain } from "./exit.js";
export { readEvaluation, writeResult } from "./files.js";
export { stopOnInterrupt } from "./interruption.js";
export { readJsonLines } from "./json-lines.js";
export { introduceModels, keepAnswersOf } from "./models.js";
export {
  checked,
  deviceOption,
  downloadNotes,
  dtypeOption,
  noteHubModel,
  quietOption,
  readCommandConfiguration,
  repeated,
  setOption,
  testerOption,
  wholeNumber,
} from "./options.js";
export { createOutput, type Output, type Streams } from "./output.js";
export { Progress, duration } from "./progress.js";
export { inProcesses, processesOption, requireAlone, requireSame } from "./ranks.js";
export { codeAfterWriting, watchStandardStreams } from "./standard-streams.js";
export { trainFollowed } from "./training.js";
