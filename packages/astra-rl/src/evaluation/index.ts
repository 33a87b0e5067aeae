// Rollouts → metrics, and statistics on them. Must not know: training, optimizers, how a system generates texts.
export { ASTEvaluator, type ASTEvaluatorOptions } from "./ast-evaluator.js";
export { auditEvaluation, auditItems, type Audit, type AuditItem, type ScorerAudit } from "./audit.js";
export {
  compareAll,
  type CompareAllOptions,
  type LabelledEvaluation,
  type OneComparison,
} from "./compare-all.js";
export { compareEvaluations, type CompareOptions } from "./compare-evaluations.js";
export { rolesOf, unlikeness, type Evaluated } from "./likeness.js";
export {
  clusterRecords,
  effectiveCount,
  leaderClusters,
  meanPairwiseDistance,
  measureDiversity,
  type DiversityOptions,
} from "./diversity/index.js";
export {
  byPrompt,
  DEFAULT_THRESHOLD,
  isScored,
  succeeds,
  summarize,
  type SummaryOptions,
} from "./summarize.js";
/** Intervals and tests as pure functions; a namespace, because their names are common words. */
export * as statistics from "./statistics/index.js";
