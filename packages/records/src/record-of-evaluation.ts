import { EVALUATION_VERSION, parseEvaluationRecord, type EvaluationRecord } from "./evaluation-record.js";

/**
 * The record of what an evaluator returned, which a custom one makes itself: it may leave out the conversations and the version.
 *
 * @param where names the evaluator in messages
 * @throws UsageError for a figure that is missing or invalid
 */
export function recordOfEvaluation(report: unknown, where: string): EvaluationRecord {
  const record = { details: [], ...(report as object | null), version: EVALUATION_VERSION };
  // As it was returned: parsing would change the order of its keys.
  parseEvaluationRecord(record, where);
  return record as unknown as EvaluationRecord;
}
