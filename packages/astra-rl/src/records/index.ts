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
  creditFromRecord,
  graphFromRecord,
  graphRecord,
  graphRecordSchema,
  parseGraphLines,
  parseGraphRecord,
  stringifyGraph,
  type GraphRecord,
  type GraphRecordOptions,
  type NodeRecord,
  type TurnRecord,
} from "./graph-record.js";
export {
  metricsRecord,
  metricsRecordSchema,
  parseMetricsLine,
  parseMetricsLines,
  stringifyMetrics,
  type MetricsRecord,
  type MetricValue,
} from "./metrics-record.js";
export { isEdited, tokensRecord, tokensSchema, type TokensRecord } from "./tokens-record.js";
export type {
  ReportEvaluation,
  ReportGraph,
  ReportNode,
  ReportRecord,
  ReportRun,
  RunCurve,
  RunDifference,
  RunGroup,
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
} from "./run-record.js";
export {
  NOTHING_LEARNED,
  doubtsOf,
  doubtsOfEvaluation,
  doubtsOfStep,
  doubtsOfTraining,
  noVerdict,
  type Evidence,
} from "./verdict.js";
