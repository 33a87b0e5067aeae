/**
 * This machine's rates, the engine's share of them, and a training step compared with the Python toolbox's way. Figures
 * are medians of one run; on a busy machine they are printed without a verdict.
 *
 *     npm run bench -- [--model DIR] [--prompts FILE.json] [--python python3] [--episodes 2,8] [--seed 0] [--output FILE.md]
 *         [--isas avx512,avx2] [--skip-parts]
 *
 * Without --model a GPT-2-shaped checkpoint of 124 million parameters is created once, in .cache/. Without a Python
 * that has torch and transformers, the comparison is omitted, and the report says so. With --isas the first of these
 * steps is also timed with smaller instruction sets. With --skip-parts only steps are measured.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir, totalmem } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { engineInformation } from "@astra-rl/torch";
import { makeCheckpoint } from "./make-checkpoint.js";
import { busy, measureRoofline, seconds, type Roofline } from "./measure.js";
import { measureParts, type Part } from "./parts.js";

/** Steps that are not counted: memory is mapped, and the optimizer's state is created. */
const WARM_UP = 2;
const STEPS = WARM_UP + 3;
/** Repetitions of a separately timed step; the median counts. */
const RUNS = 3;

const root = fileURLToPath(new URL("..", import.meta.url));
const here = fileURLToPath(new URL(".", import.meta.url));

interface StepReport {
  isa: string;
  computeTypes: { rollouts: string; updates: string };
  steps: {
    seconds: number;
    rollout_s: number;
    update_s: number;
    generated: number;
    prompts?: string[];
    /** Bound of the machine; not for the Python way. */
    bound?: { rollout_s: number; update_s: number };
  }[];
  peakResidentBytes: number;
}

const { values } = parseArgs({
  options: {
    model: { type: "string", default: join(root, ".cache", "gpt2-124m") },
    prompts: { type: "string" },
    python: { type: "string", default: "python3" },
    episodes: { type: "string", default: "2,8" },
    seed: { type: "string", default: "0" },
    output: { type: "string" },
    isas: { type: "string", default: "" },
    "skip-parts": { type: "boolean", default: false },
  },
});

const episodeCounts = values.episodes.split(",").map(Number);
if (!episodeCounts.every((count) => Number.isInteger(count) && count >= 1)) {
  console.error(
    `--episodes must be whole numbers of at least 1 with commas between them, got "${values.episodes}"`,
  );
  process.exit(2);
}

const log = (line: string) => console.error(line);
const promptFile = choosePrompts(values.prompts);
if (!existsSync(join(values.model, "config.json"))) {
  log(`making a checkpoint of 124 million parameters in ${values.model} (once)`);
  mkdirSync(dirname(values.model), { recursive: true });
  const prompts = JSON.parse(readFileSync(promptFile, "utf8")) as string[];
  await makeCheckpoint({ prompts, output: values.model, steps: 60, seed: 0, log });
}

const before = busy();
if (before.isBusy) log(`the machine is busy (load ${before.load.toFixed(2)}): figures without a verdict`);
const roofline = await measureRoofline();
log(
  `roofline: float32 ${giga(roofline.gemm.float32)} GFLOP/s, bfloat16 ${giga(roofline.gemm.bfloat16)} GFLOP/s, ` +
    `copy ${giga(roofline.copy)} GB/s, reading ${giga(roofline.read)} GB/s`,
);
const parts = values["skip-parts"] ? [] : await measureParts(values.model, roofline, log);
const rows = episodeCounts.map(compareSteps);
const levels = values.isas.split(",").filter((isa) => isa !== "");
const within = levels.flatMap((isa) => {
  const auto = stepWithin(isa, "auto", rows[0]!);
  const isFloat32 = Object.values(auto.report.computeTypes).every((type) => type === "float32");
  return isFloat32 ? [auto] : [auto, stepWithin(isa, "float32", rows[0]!)];
});
const report = render(roofline, parts, rows, within, Math.max(before.load, 0));
console.log(report);
if (values.output !== undefined) writeFileSync(values.output, report);

interface Comparison {
  episodes: number;
  /** The step of `bfloat16` that is compared; the second of `float32` and the only one of `python` have its prompts. */
  chosen: number;
  bfloat16: StepReport;
  float32: StepReport;
  /** Or the reason for a missing figure. */
  python: StepReport | string;
}

function compareSteps(episodes: number): Comparison {
  const bfloat16 = ownStep(episodes, "bfloat16", 0, STEPS);
  const chosen = medianStep(bfloat16);
  const float32 = medianOfRuns(() => ownStep(episodes, "float32", chosen - 1, 2));
  log(`${episodes} episodes: ${describe(bfloat16, chosen)} in bfloat16, ${describe(float32, 1)} in float32`);
  const python = hasPython() ? runPython(episodes, bfloat16.steps[chosen]!.prompts!) : "not run";
  log(`${episodes} episodes the Python way: ${typeof python === "string" ? python : describe(python, 0)}`);
  return { episodes, chosen, bfloat16, float32, python };
}

/** The compared step, with a smaller instruction set, after one that is not counted. */
function stepWithin(isa: string, dtype: string, { episodes, chosen }: Comparison) {
  const report = medianOfRuns(() => ownStep(episodes, dtype, chosen - 1, 2, { ASTRA_ISA: isa }));
  log(`${episodes} episodes within ${isa}: ${describe(report, 1)} with dtype ${dtype}`);
  return { dtype, report };
}

function ownStep(
  episodes: number,
  dtype: string,
  from: number,
  steps: number,
  environment: Record<string, string> = {},
): StepReport {
  const numbers = { episodes, seed: values.seed, from, steps };
  const given = asOptions({ model: values.model, prompts: promptFile, dtype, ...numbers });
  const parameters = ["--import", "tsx", join(here, "step.ts"), "--bound", ...given];
  return runJson(process.execPath, parameters, environment);
}

function asOptions(given: Record<string, string | number>): string[] {
  return Object.entries(given).flatMap(([name, value]) => [`--${name}`, String(value)]);
}

/** The Python way needs several times the memory: if it is killed, everything else is still reported. */
function runPython(episodes: number, prompts: readonly string[]): StepReport | string {
  const folder = mkdtempSync(join(tmpdir(), "bench-"));
  const file = join(folder, "prompts.json");
  writeFileSync(file, JSON.stringify(prompts));
  try {
    const script = join(here, "reference_step.py");
    const options = { model: values.model, episodes, seed: values.seed, prompts: file, steps: 1 };
    return runJson(values.python, [script, ...asOptions(options)]);
  } catch (error) {
    const { status, signal } = error as { status?: number | null; signal?: string | null };
    return signal === "SIGKILL" ? "out of memory" : `failed (${String(signal ?? status)})`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** For processes that do one step before the one that counts. */
function medianOfRuns(run: () => StepReport): StepReport {
  const runs = Array.from({ length: RUNS }, run);
  runs.sort((a, b) => a.steps[1]!.seconds - b.steps[1]!.seconds);
  return runs[RUNS >> 1]!;
}

/** Index of the step with the median time. */
function medianStep({ steps }: StepReport): number {
  const order = steps.map((_, step) => step).slice(WARM_UP);
  order.sort((a, b) => steps[a]!.seconds - steps[b]!.seconds);
  return order[Math.floor(order.length / 2)]!;
}

function describe(report: StepReport, step: number): string {
  const { seconds: taken, bound } = report.steps[step]!;
  return bound === undefined
    ? seconds(taken)
    : `${seconds(taken)} (${shareOfBound(report, step)} of its bound)`;
}

function shareOfBound({ steps }: StepReport, step: number): string {
  const { seconds: taken, bound } = steps[step]!;
  return `${((100 * (bound!.rollout_s + bound!.update_s)) / taken).toFixed(0)} %`;
}

function runJson(
  command: string,
  parameters: string[],
  environment: Record<string, string> = {},
): StepReport {
  const text = execFileSync(command, parameters, {
    cwd: root,
    env: { ...process.env, ...environment },
    encoding: "utf8",
    maxBuffer: 2 ** 26,
    stdio: ["ignore", "pipe", "inherit"],
  });
  return JSON.parse(text.trim().split("\n").at(-1)!) as StepReport;
}

function hasPython(): boolean {
  return spawnSync(values.python, ["-c", "import torch, transformers"], { stdio: "ignore" }).status === 0;
}

function choosePrompts(given: string | undefined): string {
  const candidates = [
    given,
    join(root, "..", "shared", "data", "convokit_reddit_prompts_train.json"),
    join(root, "packages", "astra-rl", "world", "prompts", "train.json"),
  ];
  const found = candidates.find((path) => path !== undefined && existsSync(path));
  if (found === undefined) throw new Error(`no prompt file: ${String(given)}`);
  return found;
}

function giga(value: number): string {
  return (value / 1e9).toFixed(value < 1e11 ? 1 : 0);
}

function render(
  roofline: Roofline,
  parts: Part[],
  comparisons: Comparison[],
  within: ReturnType<typeof stepWithin>[],
  load: number,
): string {
  const information = engineInformation();
  const lines = [
    `# Benchmark of ${new Date().toISOString().slice(0, 10)}`,
    "",
    `${cpus()[0]!.model}, ${cpus().length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB; libtorch ${information.libtorch}, ` +
      `${information.blas.replace(/ \(.*/, "")} (${String(information.coreType)}), ${information.threads} threads, ` +
      `instruction set ${information.isa}; ` +
      `load average at the start ${load.toFixed(2)}.`,
    "",
    load > 0.5 ? "**The machine was busy: no verdict follows from these figures.**\n" : "",
    "## What the machine does",
    "",
    "| product, float32 | product, bfloat16 | copy | reading |",
    "| --- | --- | --- | --- |",
    `| ${giga(roofline.gemm.float32)} GFLOP/s | ${giga(roofline.gemm.bfloat16)} GFLOP/s | ${giga(roofline.copy)} GB/s | ${giga(roofline.read)} GB/s |`,
    "",
    ...(parts.length === 0 ? [] : partLines(parts)),
    "## A training step (width 2, depth 3, 32 new tokens, DPO, batch 4)",
    "",
    "Python: `benchmarks/reference_step.py`, which works as the Python toolbox does: depth first, two rows a call, the",
    `whole conversation re-read, float32. The same checkpoint, prompts and cores, in the same run; seed ${values.seed}.`,
    "",
    "A step's bound: decoding reads weights and caches once a token, everything else is products, optimizer and copy at their rates.",
    "",
    "| episodes | here, bfloat16 | of its bound | here, float32 | of its bound | Python | Python / bfloat16 | Python / float32 | peak memory |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ...comparisons.map(({ episodes, chosen, bfloat16, float32, python }) => {
      const [fast, plain] = [bfloat16.steps[chosen]!.seconds, float32.steps[1]!.seconds];
      const slow = typeof python === "string" ? null : python.steps[0]!.seconds;
      const ratio = (own: number) => (slow === null ? "–" : `${(slow / own).toFixed(1)}×`);
      return (
        `| ${episodes} | ${seconds(fast)} | ${shareOfBound(bfloat16, chosen)} | ` +
        `${seconds(plain)} | ${shareOfBound(float32, 1)} | ` +
        `${slow === null ? (python as string) : seconds(slow)} | ${ratio(fast)} | ${ratio(plain)} | ` +
        `${(bfloat16.peakResidentBytes / 2 ** 30).toFixed(2)} GiB |`
      );
    }),
    "",
    ...(within.length === 0 ? [] : levelLines(within, comparisons[0]!)),
  ];
  return `${lines.join("\n")}\n`;
}

function partLines(parts: readonly Part[]): string[] {
  return [
    `## What the engine reaches of it (${basename(values.model)}, bfloat16)`,
    "",
    "| part | tokens/s | of its bound | bound |",
    "| --- | --- | --- | --- |",
    ...parts.map(
      ({ name, tokensPerSecond, shareOfBound, bound }) =>
        `| ${name} | ${tokensPerSecond.toFixed(0)} | ${(100 * shareOfBound).toFixed(0)} % | ${bound} |`,
    ),
    "",
  ];
}

function levelLines(
  within: ReturnType<typeof stepWithin>[],
  { episodes, chosen, bfloat16, python }: Comparison,
): string[] {
  const openers = bfloat16.steps[chosen]!.prompts!.join();
  return [
    `## The step of ${episodes} episodes within smaller instruction sets (\`ASTRA_ISA\`)`,
    "",
    "| instruction set | dtype | rollouts | updates | rollout | update | step | of its bound | Python / step | peak memory |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ...within.map(({ dtype, report }) => {
      const { isa, computeTypes, steps, peakResidentBytes } = report;
      const step = steps[1]!;
      const times = [step.rollout_s, step.update_s, step.seconds].map(seconds).join(" | ");
      if (step.prompts!.join() !== openers) throw new Error("internal: a step with other openers");
      const types = `${dtype} | ${computeTypes.rollouts} | ${computeTypes.updates}`;
      const ratio =
        typeof python === "string" ? "–" : `${(python.steps[0]!.seconds / step.seconds).toFixed(1)}×`;
      return `| ${isa} | ${types} | ${times} | ${shareOfBound(report, 1)} | ${ratio} | ${(peakResidentBytes / 2 ** 30).toFixed(2)} GiB |`;
    }),
    "",
  ];
}
