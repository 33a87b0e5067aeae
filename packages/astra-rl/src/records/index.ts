// Versioned JSON records: what a run writes and what the report and the viewer read. Must not know: models, tensors,
// how any of it was computed. Keys are written in a fixed order, so equal data gives equal bytes.
export {
  comparisonRecordSchema,
  evaluationRecordSchema,
  parseEvaluationRecord,
  parseComparisonRecord,
  stringifyEvaluation,
  type ComparisonRecord,
  type EvaluationDetail,
  type EvaluationOverall,
  type EvaluationRecord,
  type EvaluationSummary,
  type EvaluationTurn,
  type IntervalRecord,
} from "./evaluation-record.js";
export {
  graphFromRecord,
  graphRecord,
  graphRecordSchema,
  parseGraphRecord,
  stringifyGraph,
  type GraphRecord,
  type NodeRecord,
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
