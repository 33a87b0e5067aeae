import { availableParallelism } from "node:os";
import { join } from "node:path";
import { Option } from "@commander-js/extra-typings";
import { AstraError, UsageError } from "@astra-rl/base";
import { parse } from "yaml";
import { parseOverride } from "@astra-rl/assembly";
import {
  runProgram,
  trainArguments,
  EXIT,
  NoVerdictError,
  repeated,
  type Output,
} from "@astra-rl/assembly/program";
import { statistics } from "@astra-rl/analysis";
import { doubt, parseEvaluationLine, SEED_FIGURES, type Figure } from "@astra-rl/records";
import { between, linesOf, table, written } from "@astra-rl/report";

/** Runs that one command may train. */
const MOST_RUNS = 1000;

/** One value of each key of a grid, as `--set` takes it. */
interface Setting {
  /** Such as "training.learningRate=0.0001". */
  texts: string[];
  /** What folders and tables show, such as "learningRate=0.0001"; "" without a grid. */
  name: string;
}

export interface Sweep {
  config: string;
  folder: string;
  seeds: readonly number[];
  settings: readonly Setting[];
  /** Further settings of all runs. */
  set: readonly string[];
  /** Runs at a time. */
  jobs: number;
}

/** `--seeds 1-5` or `--seeds 1,3,7`. */
export const seedsOption = () =>
  new Option(
    "--seeds <list>",
    "train a run for each of these seeds, such as 1-5 or 1,3,7, and summarize them",
  ).argParser(seedsOf);

/** `--grid KEY=A,B`, which may be repeated. */
export const gridOption = () =>
  new Option(
    "--grid <key=values>",
    "train a run for each of these values, such as training.learningRate=1e-4,3e-4; repeatable",
  ).argParser(repeated(String));

function seedsOf(text: string): number[] {
  const seeds = text.split(",").flatMap((part) => {
    const [, from, to = from] = /^\s*(\d+)(?:-(\d+))?\s*$/u.exec(part) ?? [];
    if (from === undefined || Number(to) < Number(from) || Number(to) - Number(from) >= MOST_RUNS) {
      throw new UsageError(
        "invalid-seeds",
        `--seeds ${text}: must be whole numbers or ranges, such as 1-5 or 1,3,7`,
      );
    }
    return Array.from({ length: Number(to) - Number(from) + 1 }, (_, at) => Number(from) + at);
  });
  return [...new Set(seeds)];
}

/** Every combination of the values of all keys. @throws UsageError for a key without values, and too many runs */
export function settingsOf(grid: readonly string[], seeds: number): Setting[] {
  let settings: Setting[] = [{ texts: [], name: "" }];
  for (const text of grid) {
    const at = text.indexOf("=");
    const key = text.slice(0, Math.max(0, at)).trim();
    parseOverride(`${key}=0`);
    let values: unknown;
    try {
      values = parse(`[${text.slice(at + 1)}]`);
    } catch {
      values = [];
    }
    if (!Array.isArray(values) || values.length === 0) {
      throw new UsageError(
        "invalid-grid",
        `--grid ${text}: must be a key and its values, such as training.learningRate=1e-4,3e-4`,
      );
    }
    const short = key.split(".").at(-1)!;
    settings = settings.flatMap(({ texts, name }) =>
      values.map((value): Setting => {
        const shown = `${short}=${typeof value === "string" ? value : JSON.stringify(value)}`;
        return {
          texts: [...texts, `${key}=${JSON.stringify(value)}`],
          name: [name, shown].filter((part) => part !== "").join(","),
        };
      }),
    );
  }
  if (settings.length * seeds > MOST_RUNS) {
    throw new UsageError(
      "too-many-runs",
      `--grid and --seeds: ${settings.length * seeds} runs are more than ${MOST_RUNS}; choose fewer`,
    );
  }
  return settings;
}

/**
 * Trains all runs, each in its own process and folder. Completed runs are kept, others resumed: the same command
 * resumes a stopped sweep.
 *
 * @throws AstraError for failed runs, NoVerdictError for runs without a verdict; the others are summarized first
 */
export async function runSweep(sweep: Sweep, output: Output, signal: AbortSignal): Promise<void> {
  const { settings, seeds, folder, jobs } = sweep;
  const runs = settings.flatMap((setting) =>
    seeds.map((seed): SweepRun => ({ setting, seed, folder: join(folder, folderOf(setting, seed)) })),
  );
  const names = runs.map((run) => run.folder);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined)
    throw new UsageError(
      "duplicate-name",
      `--grid: two settings have the same folder name ${twice}; give values that differ in letters`,
    );
  const codes = new Map<string, number>();
  const waiting = [...runs];
  const work = async () => {
    for (let run = waiting.shift(); run !== undefined && !signal.aborted; run = waiting.shift()) {
      output.note(`${run.folder}: ${runs.length - waiting.length} of ${runs.length}`);
      const code = await trainOne(sweep, run, signal);
      codes.set(run.folder, code);
      // An invalid configuration fails with every seed.
      if (code === EXIT.usage) waiting.length = 0;
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
  for (const line of sweepReport(sweep)) output.result(line);
  const failed = [...codes]
    .filter(([, code]) => code !== EXIT.done && code !== EXIT.noVerdict)
    .map(([name]) => name);
  if (signal.aborted)
    throw new AstraError(`train: stopped; run the same command again to resume the runs in ${folder}`);
  if (failed.length > 0)
    throw new AstraError(`train: ${failed.length} of ${runs.length} runs failed: ${failed.join(", ")}`);
  const doubtful = [...codes].filter(([, code]) => code === EXIT.noVerdict).map(([name]) => name);
  if (doubtful.length > 0)
    throw new NoVerdictError("train", [doubt("no-verdict", `inconclusive runs: ${doubtful.join(", ")}`)]);
}

const folderOf = ({ name }: Setting, seed: number): string =>
  [...(name === "" ? [] : [name.replace(/[^\w.=,-]+/gu, "_").slice(0, 100)]), `seed-${seed}`].join(",");

interface SweepRun {
  setting: Setting;
  seed: number;
  folder: string;
}

/** Trains one run. @returns its exit code */
function trainOne(
  { config, set, jobs }: Sweep,
  { setting, seed, folder }: SweepRun,
  signal: AbortSignal,
): Promise<number> {
  const settings = [...set, ...setting.texts, `seed=${seed}`].flatMap((text) => ["--set", text]);
  // Concurrent processes share the processors.
  const threads = String(Math.max(1, Math.floor(availableParallelism() / jobs)));
  const env = { ...(jobs > 1 ? { OMP_NUM_THREADS: threads } : {}), ...process.env };
  return runProgram([...trainArguments(config, folder), "--quiet", ...settings], signal, env);
}

/** The last evaluation of a run; null if it has none yet. */
function lastSummary(folder: string) {
  let last: { text: string; where: string } | null = null;
  for (const line of linesOf(join(folder, "evaluations.jsonl"))) last = line;
  return last === null ? null : parseEvaluationLine(last.text, last.where).summary;
}

/** A row for each setting: the mean over seeds of the last evaluation's figures, with Student's t interval. */
export function sweepReport({
  settings,
  seeds,
  folder,
}: Pick<Sweep, "settings" | "seeds" | "folder">): string[] {
  const rows = settings.map((setting) => {
    const summaries = seeds.flatMap((seed) => lastSummary(join(folder, folderOf(setting, seed))) ?? []);
    const cell = ({ value, format }: Figure) => {
      const known = summaries.flatMap((summary) => value(summary) ?? []);
      if (known.length === 0) return "–";
      const middle = written(format, statistics.mean(known));
      const interval = statistics.seedInterval(known);
      if (interval !== null) return `${middle} (${between(format, interval)})`;
      // Equal figures have no spread, and one or two are too few.
      return known.length < 3 ? `${middle} (too few runs)` : `${middle} (all equal)`;
    };
    return [setting.name === "" ? "all" : setting.name, String(summaries.length), ...SEED_FIGURES.map(cell)];
  });
  return [
    "Means over seeds of the last evaluations on dev prompts, with 95 % intervals (Student's t):",
    "",
    ...table(["", "runs", ...SEED_FIGURES.map(({ heading }) => heading)], rows),
  ];
}
