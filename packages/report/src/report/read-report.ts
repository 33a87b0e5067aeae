import { closeSync, existsSync, openSync, readFileSync, readSync, realpathSync, statSync } from "node:fs";
import { basename, extname, join, resolve } from "node:path";
import { StringDecoder } from "node:string_decoder";
import { checkRegular, requireRegularFiles, UsageError } from "@astra-rl/base";
import { parse } from "yaml";
import { compareEvaluations, differencesInSetup } from "@astra-rl/analysis";
import {
  doubtsOfTraining,
  parseEvaluationLine,
  parseEvaluationRecord,
  parseGraphRecord,
  parseMetricsLine,
  parseRunRecord,
  type EvaluationLine,
  type GraphRecord,
  type NodeRecord,
  type ReportEvaluation,
  type ReportGraph,
  type ReportNode,
  type ReportRecord,
  type ReportRun,
} from "@astra-rl/records";
import { rewardHack } from "./comparison-report.js";
import { overSeeds } from "./over-seeds.js";
import { differencesOf, groupsOf } from "./run-groups.js";

export interface ReadReportOptions {
  /** Number of training graphs to include, evenly spaced over the run; 0 does not read them. Default: as many as `GRAPH_ROOM` allows. */
  graphs?: number;
}

/** Maximum JSON characters for the graphs of one run; larger pages open slowly. */
const GRAPH_ROOM = 20_000_000;

/** Evaluation files that a run folder may contain, in chronological order. */
export const EVALUATION_FILES = ["evaluation-before.json", "evaluation-after.json", "evaluation.json"];

/**
 * Reads run folders and evaluation files for a report.
 *
 * The first and the last of all evaluations are compared if they start from the same prompts. Evaluations are, in
 * order: those in the run folder, or else the first and last on the dev prompts during training; then the files in
 * the order given, except those of a given run folder, which are in the report already.
 *
 * @throws UsageError for a path that is neither, or for an unreadable file
 */
export function readReport(paths: readonly string[], options: ReadReportOptions = {}): ReportRecord {
  const runs: ReportRun[] = [];
  const evaluations: ReportEvaluation[] = [];
  const folders = paths.filter((path) => statSync(path, { throwIfNoEntry: false })?.isDirectory());
  const inFolders = new Set(
    folders.flatMap((folder) => evaluationFilesIn(folder).map((file) => realpathSync(file))),
  );
  for (const path of paths) {
    if (!existsSync(path))
      throw new UsageError("file-not-found", `${path}: there is no such run folder or evaluation file`);
    if (!folders.includes(path)) {
      if (inFolders.has(realpathSync(path))) continue;
      evaluations.push(evaluationOf(path, basename(path, extname(path))));
      continue;
    }
    const run = readRun(path, options);
    const prefix = folders.length > 1 ? `${run.label}: ` : "";
    for (const found of evaluationsOf(path)) {
      evaluations.push({ ...found, label: prefix + found.label, run: run.label });
    }
    runs.push(run);
  }
  const differences = differencesOf(runs);
  const groups = groupsOf(runs, differences);
  const seeds = overSeeds(runs, evaluations, differences);
  const comparison = comparisonOf(evaluations);
  return { runs, evaluations, groups, seeds, differences, comparison, version: 3 };
}

function readRun(folder: string, options: ReadReportOptions): ReportRun {
  requireRegularFiles(folder);
  const file = (name: string) => join(folder, name);
  const has = (name: string) => existsSync(file(name));
  const known = ["metrics.jsonl", "config.resolved.yaml", "run.json", ...EVALUATION_FILES];
  if (!known.some(has)) {
    throw new UsageError(
      "not-a-run-folder",
      `${folder}: contains no run (none of ${known.join(", ")}); give the --run-dir of a train or demo command`,
    );
  }
  const metrics = [...linesOf(file("metrics.jsonl"))].map(({ text, where }) => parseMetricsLine(text, where));
  const evaluations = [...linesOf(file("evaluations.jsonl"))].map(({ text, where }) => {
    const { step, summary } = parseEvaluationLine(text, where);
    return { step, summary };
  });
  return {
    label: basename(resolve(folder)),
    run: has("run.json") ? parseRunRecord(readWhole(file("run.json")), file("run.json")) : null,
    configuration: has("config.resolved.yaml") ? readYaml(file("config.resolved.yaml")) : null,
    metrics,
    evaluations,
    doubts: doubtsOfTraining(metrics),
    ...readGraphs(file("graphs.jsonl"), options),
  };
}

/** Larger files are not written by runs, and exceed the maximum string length. */
const MOST_BYTES = 1 << 28;

/** @throws UsageError for a file that is too large */
function readWhole(path: string): string {
  const { size } = statSync(path);
  if (size <= MOST_BYTES) return readFileSync(path, "utf8");
  throw new UsageError("too-large", `${path}: must have at most ${MOST_BYTES >> 20} MiB, got ${size >> 20}`);
}

function readYaml(path: string): Record<string, unknown> | null {
  const text = readWhole(path);
  try {
    const value: unknown = parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch (cause) {
    throw new UsageError("not-yaml", `${path}: is not YAML`, { cause });
  }
}

const evaluationFilesIn = (folder: string): string[] =>
  EVALUATION_FILES.map((name) => join(folder, name)).filter((file) => existsSync(file));

function evaluationsOf(folder: string): ReportEvaluation[] {
  const beside = evaluationFilesIn(folder);
  if (beside.length > 0) {
    return beside.map((file) =>
      evaluationOf(file, /^evaluation-(.+)\.json$/.exec(basename(file))?.[1] ?? "evaluation"),
    );
  }
  let first: EvaluationLine | null = null;
  let last: EvaluationLine | null = null;
  for (const { text, where } of linesOf(join(folder, "evaluations.jsonl"))) {
    last = parseEvaluationLine(text, where);
    first ??= last;
  }
  return [first, last].flatMap((line, index) =>
    line === null || (index === 1 && line === first)
      ? []
      : [
          {
            label: `dev, step ${line.step}`,
            step: line.step,
            summary: line.summary,
            measured: null,
            details: line.details,
            ...(line.goals === undefined ? {} : { goals: line.goals }),
          },
        ],
  );
}

function evaluationOf(path: string, label: string): ReportEvaluation {
  checkRegular(path);
  const { summary, details, goals, benign, measured } = parseEvaluationRecord(readWhole(path), path);
  return {
    label,
    step: null,
    summary,
    measured: measured ?? null,
    details,
    ...(goals === undefined ? {} : { goals }),
    ...(benign === undefined ? {} : { benign }),
  };
}

/**
 * The last evaluation against the first comparable one of its run, or else of all. Others are shown side by side,
 * without differences.
 */
function comparisonOf(evaluations: readonly ReportEvaluation[]): ReportRecord["comparison"] {
  const after = evaluations.length - 1;
  const last = evaluations[after];
  if (last === undefined) return null;
  // Evaluations during training do not record their settings: those of one run have the same.
  const isLike = (each: ReportEvaluation) =>
    (each.measured !== null || last.measured !== null || each.run === last.run) &&
    differencesInSetup(each, last).length === 0;
  const earlier = evaluations.slice(0, after);
  // Of several runs, the last one's own "before" comes first.
  const own = earlier.findIndex((each) => isLike(each) && last.run !== undefined && each.run === last.run);
  const before = own < 0 ? earlier.findIndex(isLike) : own;
  if (before < 0) return null;
  const record = compareEvaluations(evaluations[before]!, last);
  return { before, after, record, reward_hack: rewardHack(record, last.summary) };
}

/** Reads the graphs of a run, or evenly spaced ones that always include the last. */
function readGraphs(
  path: string,
  { graphs: most = Infinity }: ReadReportOptions,
): Pick<ReportRun, "graphs" | "graphs_total"> {
  if (most === 0) return { graphs: [], graphs_total: 0 };
  let kept: { graph: ReportGraph; index: number; room: number }[] = [];
  let stride = 1;
  let room = 0;
  let total = 0;
  let last: { text: string; where: string } | null = null;
  const keep = (line: { text: string; where: string }, index: number) => {
    const graph = slim(parseGraphRecord(line.text, line.where));
    const size = JSON.stringify(graph).length;
    kept.push({ graph, index, room: size });
    room += size;
  };
  for (const line of linesOf(path)) {
    const index = total++;
    last = line;
    if (index % stride !== 0) continue;
    keep(line, index);
    while (kept.length > 1 && (kept.length > most || room > GRAPH_ROOM)) {
      stride *= 2;
      kept = kept.filter((entry) => entry.index % stride === 0);
      room = kept.reduce((sum, entry) => sum + entry.room, 0);
    }
  }
  if (last !== null && kept.at(-1)?.index !== total - 1 && most > 1) {
    if (kept.length >= most) kept.pop();
    keep(last, total - 1);
  }
  return { graphs: kept.map(({ graph }) => graph), graphs_total: total };
}

/** A graph for display: without contexts and token ids, but with the likelihood of tokens, and with rounded numbers. */
export function slim({ children, ...graph }: GraphRecord): ReportGraph {
  const node = (record: NodeRecord): ReportNode => {
    const { context: _, tokens, ...shown } = record;
    const { pieces = [], logprobs } = tokens?.target ?? {};
    const shading =
      logprobs === undefined ? {} : { shading: pieces.map((text, at) => [text, logprobs[at]!]) };
    return {
      ...(rounded({ ...shown, ...shading, children: [] }) as ReportNode),
      children: record.children.map(node),
    };
  };
  return { ...graph, children: children.map(node) } as ReportGraph;
}

function rounded(value: unknown): unknown {
  if (typeof value === "number") return Number.isInteger(value) ? value : Number(value.toPrecision(5));
  if (Array.isArray(value)) return value.map(rounded);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, rounded(inner)]));
}

const CHUNK = 1 << 20;
/** Maximum characters of a line; no record is as long. */
const LONGEST_LINE = 1 << 27;

/**
 * Yields the complete lines of a file that may exceed the maximum string length; none if the file does not exist.
 * Skips an unterminated last line, left by a crash or still being written.
 *
 * @throws UsageError for a line without end
 */
export function* linesOf(path: string): Generator<{ text: string; where: string }> {
  if (!existsSync(path)) return;
  const handle = openSync(path, "r");
  try {
    const decoder = new StringDecoder("utf8");
    const bytes = Buffer.alloc(CHUNK);
    let parts: string[] = [];
    let number = 0;
    let length = 0;
    for (let count = readSync(handle, bytes); count > 0; count = readSync(handle, bytes)) {
      const pieces = decoder.write(bytes.subarray(0, count)).split("\n");
      for (const piece of pieces.slice(0, -1)) {
        number += 1;
        yield { text: parts.join("") + piece, where: `${path}:${number}` };
        parts = [];
        length = 0;
      }
      parts.push(pieces.at(-1)!);
      length += pieces.at(-1)!.length;
      if (length > LONGEST_LINE) {
        throw new UsageError(
          "line-too-long",
          `${path}:${number + 1}: a line must have at most ${LONGEST_LINE >> 20} Mi characters; the file is damaged`,
        );
      }
    }
  } finally {
    closeSync(handle);
  }
}
