/**
 * A training step alone and next to other work: how much longer does it take when all processors are also used by busy
 * processes?
 *
 *     npm run bench:load -- [--models small,124m] [--steps 5] [--busy 2] [--model DIR] [--dtype bfloat16] [--output FILE.md]
 *
 * "small" is the demo's tester and target (`astra-rl train` on packages/assembly/world/demo.yaml), "124m" the step of
 * benchmarks/run.ts (2 episodes). Each is run alone, next to the busy processes, and alone again, in separate processes
 * with the environment of this one: set GOMP_SPINCOUNT or OMP_NUM_THREADS to compare. On a busy machine there are
 * figures without a verdict.
 */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeCheckpoint } from "./make-checkpoint.js";
import { busy as machineIsBusy, median, seconds } from "./measure.js";

/** Steps that are not counted: memory is mapped, and the optimizer's state is created. */
const WARM_UP = 2;
/** Maximum time of a step next to other work, relative to the step alone. */
const GOAL = 3;

const root = fileURLToPath(new URL("..", import.meta.url));
const world = join(root, "packages", "astra-rl", "world");

const { values } = parseArgs({
  options: {
    models: { type: "string", default: "small,124m" },
    steps: { type: "string", default: "5" },
    busy: { type: "string", default: String(availableParallelism()) },
    model: { type: "string", default: join(root, ".cache", "gpt2-124m") },
    dtype: { type: "string", default: "bfloat16" },
    output: { type: "string" },
  },
});
const steps = Number(values.steps) + WARM_UP;
const log = (line: string) => console.error(line);

/** Seconds of each counted step. */
type Timed = () => number[];

function stepsOfSmall(): number[] {
  const folder = mkdtempSync(join(tmpdir(), "beside-load-"));
  try {
    const program = join(root, "packages", "astra-rl", "bin", "astra-rl.js");
    const settings = [`training.trainingSteps=${steps}`, "training.evaluateEvery=0"];
    run([
      program,
      "train",
      join(world, "demo.yaml"),
      "--run-dir",
      join(folder, "run"),
      "--quiet",
      ...settings.flatMap((setting) => ["--set", setting]),
    ]);
    const lines = readFileSync(join(folder, "run", "metrics.jsonl"), "utf8")
      .trim()
      .split("\n");
    return lines.map((line) => {
      const record = JSON.parse(line) as Record<string, number>;
      return record["time/rollout_s"]! + record["time/update_s"]!;
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function stepsOf124m(): number[] {
  const script = join(root, "benchmarks", "step.ts");
  const prompts = join(world, "prompts", "train.json");
  const settings = ["--model", values.model, "--prompts", prompts, "--dtype", values.dtype];
  const output = run(["--import", "tsx", script, ...settings, "--episodes", "2", "--steps", String(steps)]);
  const report = JSON.parse(output.trim().split("\n").at(-1)!) as { steps: { seconds: number }[] };
  return report.steps.map((step) => step.seconds);
}

function run(parameters: readonly string[]): string {
  const { status, signal, stdout } = spawnSync(process.execPath, parameters, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (status !== 0) throw new Error(`${parameters.join(" ")} ended with ${String(signal ?? status)}`);
  return stdout;
}

const BUSY =
  "const parent = process.ppid; for (let i = 0; i % 2 ** 24 !== 0 || process.ppid === parent; i++) Math.random();";

/** Processes that compute until stopped, and at most until this one exits, in any way. */
function startBusy(count: number): () => void {
  const children = Array.from({ length: count }, (): ChildProcess =>
    spawn(process.execPath, ["-e", BUSY], { stdio: "ignore" }),
  );
  const stop = () => children.forEach((child) => child.kill("SIGKILL"));
  process.once("exit", stop);
  return stop;
}

function counted(timed: Timed): number[] {
  return timed().slice(WARM_UP);
}

interface Row {
  name: string;
  alone: number;
  beside: number;
  worst: number;
}

function measure(name: string, timed: Timed): Row {
  const before = counted(timed);
  const stop = startBusy(Number(values.busy));
  let beside: number[];
  try {
    beside = counted(timed);
  } finally {
    stop();
  }
  const after = counted(timed);
  const show = (list: readonly number[]) => list.map((each) => each.toFixed(2)).join(" ");
  log(`${name}: alone ${show(before)} | under load ${show(beside)} | alone ${show(after)}`);
  return {
    name,
    alone: median([...before, ...after]),
    beside: median(beside),
    worst: Math.max(...beside),
  };
}

const atStart = machineIsBusy();
if (atStart.isBusy) log(`the machine is busy (load ${atStart.load.toFixed(2)}): figures without a verdict`);

const kinds: Record<string, { name: string; timed: Timed; prepare?: () => Promise<void> }> = {
  small: { name: "small (the demo's, 8 episodes)", timed: stepsOfSmall },
  "124m": {
    name: `GPT-2, 124M (${values.dtype}, 2 episodes)`,
    timed: stepsOf124m,
    prepare: async () => {
      if (existsSync(join(values.model, "config.json"))) return;
      log(`making a checkpoint of 124 million parameters in ${values.model} (once)`);
      mkdirSync(dirname(values.model), { recursive: true });
      const prompts = JSON.parse(readFileSync(join(world, "prompts", "train.json"), "utf8")) as string[];
      await makeCheckpoint({ prompts, output: values.model, steps: 60, seed: 0, log });
    },
  },
};

const rows: Row[] = [];
for (const each of values.models.split(",")) {
  const kind = kinds[each];
  if (kind === undefined) throw new Error(`--models: ${each} is none of ${Object.keys(kinds).join(", ")}`);
  await kind.prepare?.();
  rows.push(measure(kind.name, kind.timed));
}

const setting = ["OMP_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"]
  .filter((name) => process.env[name] !== undefined)
  .map((name) => `${name}=${process.env[name]}`);
const report = [
  `${cpus()[0]!.model}, ${cpus().length} cores, ${values.busy} busy processes, ${values.steps} steps each (medians); ` +
    `${setting.length > 0 ? setting.join(" ") : "no variable set"}; load average ${atStart.load.toFixed(2)} at the ` +
    `start, ${loadavg()[0]!.toFixed(2)} at the end.`,
  "",
  `| model | alone | under load | under load / alone | longest under load | goal: at most ${GOAL}× |`,
  "| --- | --- | --- | --- | --- | --- |",
  ...rows.map(({ name, alone, beside, worst }) => {
    const verdict = atStart.isBusy ? "–" : beside / alone <= GOAL ? "held" : "missed";
    return (
      `| ${name} | ${seconds(alone)} | ${seconds(beside)} | ${(beside / alone).toFixed(1)}× | ` +
      `${seconds(worst)} | ${verdict} |`
    );
  }),
  "",
].join("\n");
console.log(report);
if (values.output !== undefined) writeFileSync(values.output, report);
