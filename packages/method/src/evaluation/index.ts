export { ASTEvaluator, controlsOf, targetsOf, type ASTEvaluatorOptions } from "./ast-evaluator.js";
export {
  Evaluator,
  type EvaluateOptions,
  type GraphMetrics,
  type Metric,
  type Metrics,
} from "./evaluator.js";
