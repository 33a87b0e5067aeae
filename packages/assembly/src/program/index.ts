export { runProgram, setProgram, trainArguments } from "./child.js";
export { EXIT, EndedTogetherError, NoVerdictError, explain } from "./exit.js";
export { readEvaluation, readResult, writeResult } from "./files.js";
export { readJsonLines } from "./json-lines.js";
export { watchLateErrors } from "./late-errors.js";
export { checked, quietOption, repeated, wholeNumber } from "./option-values.js";
export { createOutput, type Output, type Streams } from "./output.js";
export { codeAfterWriting, watchStandardStreams } from "./standard-streams.js";
