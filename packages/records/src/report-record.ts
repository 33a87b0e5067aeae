import type { ComparisonRecord, EvaluationDetail, EvaluationSummary } from "./evaluation-record.js";
import type { GoalRecord } from "./goal-record.js";
import type { BenignAnswer } from "./over-refusal-record.js";
import type { SeedFigureKey } from "./figures.js";
import type { GraphRecord, TurnRecord } from "./graph-record.js";
import type { MetricsRecord } from "./metrics-record.js";
import type { Doubt } from "./verdict.js";
import type { MeasuredRecord, RunRecord } from "./run-record.js";

// Types only: a report is written by this package and read by the viewer of the same build.

/** A turn without its context, which follows from the tree: the parent's context, probe and response. */
export type ReportNode = Omit<TurnRecord<unknown, unknown>, "context" | "tokens"> & {
  children: ReportNode[];
  /** The probe's tokens for the target, with log P of each; absent where they were not recorded. */
  shading?: [text: string, logprob: number][];
  [extra: string]: unknown;
};

export interface ReportGraph {
  context: unknown;
  children: ReportNode[];
  /** The messages of a prompt that has several. */
  promptMessages?: GraphRecord["promptMessages"];
  seed: number;
  episode: number;
  version: number;
  /** The training step of the graph. */
  step?: GraphRecord["step"];
  [extra: string]: unknown;
}

/** One evaluation with its label in the report. */
export interface ReportEvaluation {
  label: string;
  /** The training step after which it ran; null if the record does not say. */
  step: number | null;
  /** The run folder that it lies in; absent for a file given by itself. */
  run?: string;
  summary: EvaluationSummary;
  measured: MeasuredRecord | null;
  /** Empty for evaluations during training other than the last, which show metrics only. */
  details: EvaluationDetail[];
  /** Absent without goals. */
  goals?: GoalRecord[];
  /** Absent without benign prompts. */
  benign?: BenignAnswer[];
}

export interface ReportRun {
  /** The run folder's name. */
  label: string;
  /** null without a run.json, which a trainer alone does not write. */
  run: RunRecord | null;
  /** The parsed `config.resolved.yaml`; null if there is none. */
  configuration: Record<string, unknown> | null;
  metrics: MetricsRecord[];
  /** Evaluations on the dev prompts during training, without their conversations. */
  evaluations: { step: number; summary: EvaluationSummary }[];
  graphs: ReportGraph[];
  /** Reasons why its training says nothing about the target; empty if there are none. */
  doubts: Doubt[];
  /** Number of graphs in the run folder; a report may contain only some of them. */
  graphs_total: number;
}

/** A curve over runs: the mean and its 95 % interval (Student's t) at each step; null where a run has no value. */
export interface RunCurve {
  middle: (number | null)[];
  lower: (number | null)[];
  upper: (number | null)[];
}

/** Runs that differ in their seed alone. */
export interface RunGroup {
  label: string;
  /** Indices into `runs`. */
  runs: number[];
  /** Long runs are averaged over windows: the last step of each. */
  steps: number[];
  /** By key of metrics.jsonl. */
  curves: Record<string, RunCurve>;
}

/** A figure over runs of several seeds. */
export interface SeedFigure {
  mean: number;
  /** Student's t interval of the mean at 95 %; null below three seeds and where all are equal. */
  interval: { lower: number; upper: number } | null;
  n_seeds: number;
}

/** The last evaluations of runs that differ in their seed alone, with the figures of `SEED_FIGURES`. */
export interface SeedSummary extends Record<SeedFigureKey, SeedFigure | null> {
  /** What tells these runs from the others, such as "learningRate=0.1"; "" where all runs are of one configuration. */
  label: string;
  /** Indices into `runs`, and those of their last evaluations that count into `evaluations`. */
  runs: number[];
  evaluations: number[];
  /** Evaluations that say nothing of the target, and do not count. */
  n_without_verdict: number;
}

/** An option in which runs differ: its value in each of `runs`. */
export interface RunDifference {
  key: string;
  values: string[];
}

/** The data of a report. */
export interface ReportRecord {
  runs: ReportRun[];
  evaluations: ReportEvaluation[];
  /** At least three runs of one configuration each; empty if there are none. */
  groups: RunGroup[];
  /** A headline for each configuration of which at least two seeds were evaluated; empty if there are none. */
  seeds: SeedSummary[];
  /** The options in which the runs differ; empty for a single run. */
  differences: RunDifference[];
  /**
   * `before` and `after` are indices into `evaluations`; null if no two are comparable. `reward_hack` is a sentence where the
   * tester gained by the first scorer and not by the second.
   */
  comparison: { before: number; after: number; record: ComparisonRecord; reward_hack: string | null } | null;
  version: number;
}
