// Versioned JSON records: written by runs, read by the report and the viewer. Must not know: models, tensors, how
// values were computed. Keys are written in a fixed order, so equal data gives equal bytes.
export {
  comparisonRecordSchema,
  evaluationLineSchema,
  evaluationRecordSchema,
  parseEvaluationLine,
  parseEvaluationLines,
  parseEvaluationRecord,
  parseComparisonRecord,
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
  type IntervalRecord,
  type SecondSummary,
  type TargetSummary,
  EVALUATION_VERSION,
} from "./evaluation-record.js";
export {
  FIGURE_FIELDS,
  FIGURES,
  figureOf,
  metricKeys,
  SEED_FIGURES,
  type Figure,
  type FigureDifference,
  type FigureKey,
  type SeedFigureKey,
} from "./figures.js";
export {
  graphRecordSchema,
  parseGraphLines,
  parseGraphRecord,
  type GraphRecord,
  type NodeRecord,
  type TurnRecord,
} from "./graph-record.js";
export { finiteOrNull, RECORD_VERSION, sortKeys } from "./parse-record.js";
export {
  failureCause,
  failureSchema,
  likelihoodSchema,
  RESPONSE_NOTES,
  type Failure,
  type FailureCause,
  type Likelihood,
  type ResponseNote,
} from "./turn-record.js";
export {
  metricsRecord,
  metricsRecordSchema,
  parseMetricsLine,
  parseMetricsLines,
  stringifyMetrics,
  warningKey,
  warningsOf,
  type MetricsRecord,
  type MetricValue,
  type TrainingWarning,
} from "./metrics-record.js";
export { tokensSchema, type TokensRecord } from "./tokens-record.js";
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
export type { GraphEntry, GraphHit, GraphHits, ViewList, ViewRun } from "./view-record.js";
export {
  measuredSchema,
  parseRunRecord,
  runRecordSchema,
  stringifyRunRecord,
  type FileIdentity,
  type MeasuredRecord,
  type ModelIdentity,
  type ServerRecord,
  type RunRecord,
  type RunSession,
  type SearchRecord,
} from "./run-record.js";
export {
  doubt,
  DOUBT_RULES,
  doubtsOf,
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
// shim
export { creditFromRecord, graphFromRecord, graphRecord, stringifyGraph, type GraphRecordOptions } from "../core/graph-record.js";
export { isEdited, tokensRecord } from "../core/turn-tokens.js";
