export { readProbability, yesOrNo } from "./readings.js";
export { RubricScorer } from "./rubric-scorer.js";
export {
  codeRubricShape,
  rubricOf,
  rubricShape,
  RUBRICS,
  type Material,
  type Rubric,
  type RubricMessage,
} from "./rubric.js";
export { readVerdict, type JudgeAnswer, type Verdict } from "./verdict.js";
