import {
  doubtsOfEvaluation,
  doubtsOfFigures,
  doubtsOfMeasurement,
  type EvaluationRecord,
} from "@astra-rl/records";
import { acceptAdvice, doubtLines, evaluationReport, foundReport } from "@astra-rl/report";
import { NoVerdictError } from "../program/exit.js";
import type { Output } from "../program/output.js";
import { Progress } from "./progress.js";

/** Shows the progress of an evaluation; see `onProgress` of `evaluate`. */
export function evaluationProgress(output: Output): (done: number, total: number) => void {
  let progress = null as Progress | null;
  return (done, total) => {
    if (done === 0) progress = new Progress(output, { unit: "rollout", total });
    else progress?.update(done);
    if (done === total) progress?.end();
  };
}

/** Shows an evaluation as text or JSON, then with its doubts beside it. @throws NoVerdictError if it is inconclusive about the target */
export function showEvaluation(
  command: string,
  record: EvaluationRecord,
  output: Output,
  json: boolean,
): void {
  if (json) {
    output.json(record);
    // Who reads one figure of the record would miss them.
    for (const line of doubtLines(record)) output.alert(line);
  } else for (const line of [...evaluationReport(record), ...foundReport(record)]) output.result(line);
  const all = doubtsOfEvaluation(record.summary);
  const doubts = doubtsOfFigures(all);
  if (doubts.length === 0) return;
  // Without rollouts, the canary is why.
  if (record.summary.n_rollouts > 0) throw new NoVerdictError(command, doubts);
  throw new NoVerdictError(command, all, acceptAdvice(doubtsOfMeasurement(all)));
}
