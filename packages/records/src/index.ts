/**
 * Versioned JSON records, written by runs and read by reports and the viewer, and the folder of a run. It must not know models,
 * tensors, or how values are computed. Keys are written in a fixed order, so equal data gives equal bytes.
 *
 * @module @astra-rl/records
 */
export {
  EVALUATION_VERSION,
  comparisonRecordSchema,
  evaluationLineSchema,
  evaluationRecordSchema,
  parseComparisonRecord,
  parseEvaluationLine,
  parseEvaluationLines,
  parseEvaluationRecord,
  stringifyEvaluation,
  stringifyEvaluationLine,
  type ComparisonRecord,
  type DiversityRecord,
  type EvaluationDetail,
  type EvaluationLine,
  type EvaluationOverall,
  type EvaluationRecord,
  type EvaluationSummary,
  type EvaluationTurn,
  type SecondSummary,
  type TargetSummary,
} from "./evaluation-record.js";
export { recordOfEvaluation } from "./record-of-evaluation.js";
export {
  FIGURES,
  FIGURE_FIELDS,
  SEED_FIGURES,
  figureOf,
  metricKeys,
  testOf,
  type Figure,
  type FigureDifference,
  type FigureKey,
  type SeedFigureKey,
} from "./figures.js";
export { parserOf } from "./parse-record.js";
export { controlsSchema, HARMLESS_TEXT, isPositive, type Control } from "./controls.js";
export * from "./gate/index.js";
export { goalSchema } from "./goal-record.js";
export type { GoalFigures, GoalRate, GoalRecord, GoalsSummary, UnknownReason } from "./goal-record.js";
export type { IntervalRecord } from "./interval-record.js";
export type { UtilitySummary } from "./utility-record.js";
export type { BenignAnswer, OverRefusalSummary } from "./over-refusal-record.js";
export {
  graphRecordSchema,
  parseGraphLines,
  parseGraphRecord,
  type GraphRecord,
  type NodeRecord,
  type TurnRecord,
} from "./graph-record.js";
export {
  metricsRecord,
  metricsRecordSchema,
  parseMetricsLine,
  parseMetricsLines,
  stringifyMetrics,
  type MetricValue,
  type MetricsRecord,
  type TrainingWarning,
  warningKey,
  warningsOf,
} from "./metrics-record.js";
export { RECORD_VERSION, finiteOrNull, sortKeys } from "./parse-record.js";
export type {
  ReportEvaluation,
  ReportGraph,
  ReportNode,
  ReportRecord,
  ReportRun,
  RunCurve,
  RunDifference,
  RunGroup,
  SeedFigure,
  SeedSummary,
} from "./report-record.js";
export {
  measuredSchema,
  parseRunRecord,
  runRecordSchema,
  stringifyRunRecord,
  type FileIdentity,
  type MeasuredRecord,
  type ModelIdentity,
  type RunRecord,
  type RunSession,
  type SearchRecord,
  type ServerRecord,
} from "./run-record.js";
export { callText, divergenceText, textWithCalls, type ToolCallRecord } from "./tool-call.js";
export { tokensSchema, type TokensRecord } from "./tokens-record.js";
export {
  RESPONSE_NOTES,
  divergenceSchema,
  failureCause,
  failureSchema,
  likelihoodSchema,
  toolCallSchema,
  type Divergence,
  type Failure,
  type FailureCause,
  type Likelihood,
  type ResponseNote,
} from "./turn-record.js";
export {
  CANARY_RULES,
  DOUBT_RULES,
  doubt,
  doubtsOf,
  doubtsOfAnswers,
  doubtsOfCalls,
  doubtsOfCanary,
  doubtsOfControls,
  doubtsOfEvaluation,
  doubtsOfFigures,
  doubtsOfMeasurement,
  doubtsOfRollouts,
  doubtsOfStep,
  doubtsOfTraining,
  noVerdict,
  reasonsOf,
  type Doubt,
  type DoubtRule,
  type EvaluationEvidence,
  type Evidence,
} from "./verdict.js";
export type { GraphEntry, GraphHit, GraphHits, ViewList, ViewRun } from "./view-record.js";
export * from "./run-folder/index.js";
