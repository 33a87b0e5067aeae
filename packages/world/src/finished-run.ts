import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  HashedNgramEmbedder,
  measureDiversity,
  parseComparisonRecord,
  parseEvaluationRecord,
  parseMetricsLines,
  type EvaluationDetail,
  type IntervalRecord,
} from "astra-rl";

export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/**
 * Runs a command of the toolbox with one thread, showing only its warnings.
 *
 * @returns its processor seconds, in user and system mode
 */
export function astra(args: readonly string[]): number {
  // Bash measures the time of its commands.
  const script = `TIMEFORMAT="%U %S"; time "$@" 2>&3`;
  const command = [process.execPath, join(ROOT, "packages/astra-rl/bin/astra-rl.js"), ...args];
  const { status, stderr } = spawnSync("bash", ["-c", script, "astra-rl", ...command], {
    stdio: ["ignore", "ignore", "pipe", 2],
    encoding: "utf8",
    env: { ...process.env, OMP_NUM_THREADS: "1" },
  });
  if (status !== 0) throw new Error(`astra-rl ${args.join(" ")} exited with status ${status}`);
  return stderr
    .trim()
    .split(" ")
    .reduce((sum, seconds) => sum + Number(seconds), 0);
}

/**
 * Runs the demo with these arguments into the folder `<name>-<seed>` of `runs` if that has not been done, and reads its
 * results.
 */
export async function finishedRun(runs: string, name: string, seed: string, args: readonly string[]) {
  const folder = join(runs, `${name}-${seed}`);
  const timing = `${folder}.time`;
  if (!existsSync(join(folder, "comparison.json"))) {
    const seconds = astra(["demo", "--seed", seed, ...args, "--run-dir", folder]);
    writeFileSync(timing, String(seconds));
  }
  const read = (name: string) => readFileSync(join(folder, name), "utf8");
  const comparison = parseComparisonRecord(read("comparison.json"), folder);
  const { summary: before, details: untrained } = parseEvaluationRecord(
    read("evaluation-before.json"),
    folder,
  );
  const { summary: after, details } = parseEvaluationRecord(read("evaluation-after.json"), folder);
  const diversity = await diversityOf(details);
  const seconds = existsSync(timing) ? Number(readFileSync(timing, "utf8")) : null;
  const metrics = parseMetricsLines(read("metrics.jsonl"));
  const report = read("report.txt").trimEnd();
  return { comparison, before, untrained, after, details, diversity, seconds, metrics, report };
}

/** Of found attacks, by the embedder of the demo. */
export const diversityOf = (details: readonly EvaluationDetail[]) =>
  measureDiversity(details, { embedder: new HashedNgramEmbedder() });

export const percent = (share: number | null) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);

export const signed = (value: number, digits = 2) =>
  `${Number(value.toFixed(digits)) < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

/** An interval of a share, in percent, to be appended to it; empty for none. */
export const range = (interval: Pick<IntervalRecord, "lower" | "upper"> | null) =>
  interval === null ? "" : ` (${(100 * interval.lower).toFixed(0)}–${(100 * interval.upper).toFixed(0)})`;
