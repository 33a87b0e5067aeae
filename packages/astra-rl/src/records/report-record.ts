import type { ComparisonRecord, EvaluationDetail, EvaluationSummary } from "./evaluation-record.js";
import type { GraphRecord, TurnRecord } from "./graph-record.js";
import type { MetricsRecord } from "./metrics-record.js";
import type { MeasuredRecord, RunRecord } from "./run-record.js";

// Types alone: a report is written by this package and read by the page that is built with it.

/** A turn without what its place in the tree says already: a child's context is its parent's, probe and response. */
export type ReportNode = Omit<TurnRecord<unknown, unknown>, "context" | "tokens"> & {
  children: ReportNode[];
  [extra: string]: unknown;
};

export interface ReportGraph {
  context: unknown;
  children: ReportNode[];
  seed: number;
  episode: number;
  version: number;
  /** The training step that it was grown for. */
  step?: GraphRecord["step"];
  [extra: string]: unknown;
}

/** One evaluation with the name it goes by in the report. */
export interface ReportEvaluation {
  label: string;
  /** The training step that it came after; null where the record does not say. */
  step: number | null;
  summary: EvaluationSummary;
  measured: MeasuredRecord | null;
  /** Empty for the evaluations during training, of which only figures are shown, but for the last. */
  details: EvaluationDetail[];
}

export interface ReportRun {
  /** The run folder's name. */
  label: string;
  /** null for runs that were made before there was a run.json. */
  run: RunRecord | null;
  /** `config.resolved.yaml` as a value; null where there is none. */
  configuration: Record<string, unknown> | null;
  metrics: MetricsRecord[];
  /** Evaluations on the dev prompts during training, without their conversations. */
  evaluations: { step: number; summary: EvaluationSummary }[];
  graphs: ReportGraph[];
  /** Why its training says nothing of the target; empty where it does, absent where nobody asked. */
  doubts?: string[];
  /** Graphs that the run folder holds; more than `graphs` where a report takes only some of them. */
  graphs_total: number;
}

/** Everything that a report shows. */
export interface ReportRecord {
  runs: ReportRun[];
  evaluations: ReportEvaluation[];
  /** Of the evaluations at these two places; null where no two can be compared. */
  comparison: { before: number; after: number; record: ComparisonRecord } | null;
  version: number;
}
