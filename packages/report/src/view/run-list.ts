import { closeSync, fstatSync, lstatSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import {
  doubtsOfEvaluation,
  doubtsOfFigures,
  figureOf,
  metricKeys,
  parseEvaluationRecord,
  RESOLVED_CONFIGURATION,
  RunLock,
  type FigureKey,
  type MetricsRecord,
  type ViewList,
  type ViewRun,
} from "@astra-rl/records";
import { openIfFile, stampOf, stampsIn } from "./open-file.js";

/** Files of which a run folder has at least one. */
const OF_A_RUN = [
  "metrics.jsonl",
  RESOLVED_CONFIGURATION,
  "run.json",
  "evaluation.json",
  "evaluation-after.json",
];
/** Maximum depth of searched folders. */
const DEPTH = 4;
const MOST_FOLDERS = 5000;
/** Of metrics.jsonl: the last evaluation is within the last steps. */
const TAIL = 1 << 18;
const HEAD = 200;
/** Maximum bytes of a file that is read completely. */
const MOST_WHOLE = 1 << 28;

/** Lists run folders and evaluation files below a folder; rereads only changed ones. */
export class RunList {
  /** Descriptions of runs, valid until one of their files changes. */
  readonly #known = new Map<string, { stamp: string; run: Omit<ViewRun, "state"> }>();
  /** Whether a file is an evaluation, until it changes. */
  readonly #files = new Map<string, { stamp: string; isEvaluation: boolean }>();

  #ids: ReadonlySet<string> = new Set();

  constructor(readonly folder: string) {}

  /** Whether a run is in the list: no other folder is read, for any URL. */
  has(id: string): boolean {
    if (!this.#ids.has(id)) this.read();
    return this.#ids.has(id);
  }

  read(): ViewList {
    const runs: ViewRun[] = [];
    const evaluations: string[] = [];
    let visited = 0;
    const visit = (id: string, depth: number) => {
      if (depth > DEPTH || ++visited > MOST_FOLDERS) return;
      const path = join(this.folder, id);
      const names = entriesOf(path);
      const isRun = names.files.some((name) => OF_A_RUN.includes(name));
      if (isRun) runs.push(this.#run(id, path));
      else
        evaluations.push(
          ...names.files.map((name) => join(id, name)).filter((file) => this.#isEvaluation(file)),
        );
      for (const name of names.folders) {
        if (isRun && ["checkpoints", "inputs", "tensorboard"].includes(name)) continue;
        visit(id === "." ? name : `${id}/${name}`, depth + 1);
      }
    };
    visit(".", 0);
    runs.sort((a, b) => b.changed - a.changed || (a.id < b.id ? -1 : 1));
    this.#ids = new Set(runs.map(({ id }) => id));
    return { folder: this.folder, runs, evaluations: evaluations.sort() };
  }

  #run(id: string, path: string): ViewRun {
    const stamp = stampsIn(path, [...OF_A_RUN, "graphs.jsonl"]);
    let known = this.#known.get(id);
    if (known?.stamp !== stamp) {
      known = { stamp, run: describe(id, path) };
      this.#known.set(id, known);
    }
    const { run } = known;
    const isTraining = RunLock.isHeld(path);
    const isFinished = run.planned !== null && run.steps >= run.planned;
    return { ...run, state: isTraining ? "training" : isFinished ? "finished" : "stopped" };
  }

  #isEvaluation(file: string): boolean {
    const path = join(this.folder, file);
    if (!file.endsWith(".json")) return false;
    const stamp = stampOf(path);
    let known = this.#files.get(file);
    if (known?.stamp !== stamp) {
      known = { stamp, isEvaluation: looksLikeEvaluation(path) };
      this.#files.set(file, known);
    }
    return known.isEvaluation;
  }
}

function entriesOf(path: string): { files: string[]; folders: string[] } {
  try {
    const entries = readdirSync(path, { withFileTypes: true });
    const named = (isWanted: (entry: (typeof entries)[number]) => boolean) =>
      entries.filter((entry) => isWanted(entry) && !entry.name.startsWith(".")).map(({ name }) => name);
    return {
      files: named((entry) => entry.isFile()),
      folders: named((entry) => entry.isDirectory() && entry.name !== "node_modules"),
    };
  } catch {
    // Deleted meanwhile, or owned by another user.
    return { files: [], folders: [] };
  }
}

/** Files of a run folder that a report reads. */
const READ = [...OF_A_RUN, "evaluations.jsonl", "evaluation-before.json", "graphs.jsonl"];

/** A link among the files of a run folder that a report reads; null if there is none. Links may lead out of the viewed folder. */
export const linkIn = (path: string): string | null =>
  READ.map((name) => join(path, name)).find(
    (file) => lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() === true,
  ) ?? null;

/** Changes when the report of a run folder or an evaluation file changes. */
export const stampOfReport = (path: string): string =>
  `${stampOf(path)} ${stampsIn(path, [...OF_A_RUN, "evaluations.jsonl", "evaluation-before.json"])}`;

function looksLikeEvaluation(path: string): boolean {
  return /^\s*\{\s*"(measured|summary)"/u.test(readPart(path, (size) => [0, Math.min(HEAD, size)]));
}

/** A part of a file; "" where it cannot be read. */
function readPart(path: string, part: (size: number) => [start: number, length: number]): string {
  const handle = openIfFile(path);
  if (handle === null) return "";
  try {
    const [start, length] = part(fstatSync(handle).size);
    const bytes = Buffer.alloc(length);
    return bytes.toString("utf8", 0, readSync(handle, bytes, 0, length, start));
  } finally {
    closeSync(handle);
  }
}

const readAll = (path: string): string => readPart(path, (size) => [0, size > MOST_WHOLE ? 0 : size]);

function describe(id: string, path: string): Omit<ViewRun, "state"> {
  const configuration = objectOf(() => parse(readAll(join(path, RESOLVED_CONFIGURATION))));
  const record = objectOf(() => JSON.parse(readAll(join(path, "run.json"))));
  const last = lastMetrics(join(path, "metrics.jsonl"));
  const value = (key: string) => numberOr(last.find((line) => numberOr(line[key]) !== null)?.[key]);
  const models = objectOf(() => configuration["models"]);
  const training = objectOf(() => configuration["training"]);
  const sessions = record["sessions"];
  const started = Array.isArray(sessions) ? objectOf(() => sessions[0])["started"] : null;
  const evaluated = lastEvaluation(path);
  const figure = (key: FigureKey) => {
    const found = figureOf(key);
    return evaluated === null ? value(metricKeys(found)!.value) : found.value(evaluated);
  };
  const stats = lstatSync(join(path, "metrics.jsonl"), { throwIfNoEntry: false }) ?? lstatSync(path);
  return {
    id,
    steps: last[0]?.step ?? 0,
    planned: numberOr(training["trainingSteps"]),
    started: textOr(started),
    changed: stats.mtimeMs,
    tester: modelOf(models["tester"]),
    target: modelOf(models["target"]),
    algorithm: textOr(objectOf(() => configuration["algorithm"])["type"]),
    seed: numberOr(configuration["seed"]),
    hasVerdict: evaluated === null || doubtsOfFigures(doubtsOfEvaluation(evaluated)).length === 0,
    success: figure("success_rate"),
    harmless: figure("harmless_probe_success_rate"),
    clusters: figure("cluster_success_rate"),
    nll: figure("mean_probe_nll"),
  };
}

/** The summary of a command's evaluation in the folder; null if there is no readable one. */
function lastEvaluation(path: string) {
  for (const name of ["evaluation.json", "evaluation-after.json"]) {
    try {
      return parseEvaluationRecord(readAll(join(path, name)), name).summary;
    } catch {
      // Absent, or damaged, which its report shows.
    }
  }
  return null;
}

/** The last lines of metrics.jsonl, the latest first. */
function lastMetrics(path: string): MetricsRecord[] {
  const text = readPart(path, (size) => [Math.max(0, size - TAIL), Math.min(TAIL, size)]);
  const lines = text.split("\n").slice(0, -1).reverse();
  return lines.flatMap((line) => {
    const value = objectOf(() => JSON.parse(line));
    return typeof value["step"] === "number" ? [value as MetricsRecord] : [];
  });
}

/** The object that a function returns; {} if it returns none or throws, because files may be damaged or half written. */
function objectOf(read: () => unknown): Record<string, unknown> {
  try {
    const value = read();
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

const numberOr = (value: unknown): number | null =>
  typeof value === "number" && Number.isFinite(value) ? value : null;
const textOr = (value: unknown): string | null => (typeof value === "string" ? value : null);

function modelOf(setting: unknown): string | null {
  if (Array.isArray(setting)) return setting.map((each) => modelOf(each) ?? "?").join(", ");
  const { path, model, type } = objectOf(() => setting);
  return textOr(setting) ?? textOr(path) ?? textOr(model) ?? textOr(type);
}
