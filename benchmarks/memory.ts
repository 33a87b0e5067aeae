/**
 * Resident memory of a training run, step by step: does it grow?
 *
 *     npx tsx benchmarks/memory.ts CONFIG.yaml [--steps 200] [--set key=value …]
 *     npm run bench:memory -- --model .cache/gpt2-124m --steps 100
 *
 * With --model instead of a configuration: that checkpoint as tester and target, with the step of benchmarks/step.ts
 * (width 2, depth 3, 32 new tokens, DPO, batch 4, 2 episodes). `npm run bench:load` creates .cache/gpt2-124m if it is
 * missing.
 *
 * Runs `astra-rl train` and reads the process's resident memory four times a second. Linux only.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    steps: { type: "string", default: "200" },
    model: { type: "string" },
    set: { type: "string", multiple: true, default: [] },
  },
});
const folder = mkdtempSync(join(tmpdir(), "memory-"));
const configuration =
  positionals[0] ?? (values.model === undefined ? undefined : stepOf(resolve(values.model)));
if (configuration === undefined) {
  rmSync(folder, { recursive: true });
  console.error("usage: memory.ts CONFIG.yaml | --model FOLDER [--steps N] [--set key=value …]");
  process.exit(2);
}

/** A configuration of the step that benchmarks/step.ts times; JSON is YAML. */
function stepOf(model: string): string {
  const file = join(folder, "step.yaml");
  const generation = { maxNewTokens: 32, temperature: 1, topK: 50, topP: 0.9 };
  const settings = {
    models: { tester: model, target: model },
    sampler: { width: 2, depth: 3 },
    generation: { tester: generation, target: generation },
    reward: { preset: "toolbox" },
    algorithm: { type: "dpo", beta: 0.1 },
    training: {
      numEpisodesPerExperience: 2,
      batchSize: 4,
      learningRate: 1e-5,
      evaluateEvery: 0,
      checkpointEvery: 0,
    },
  };
  writeFileSync(file, JSON.stringify(settings));
  return file;
}

const run = join(folder, "run");
const metrics = join(run, "metrics.jsonl");
const program = fileURLToPath(new URL("../packages/astra-rl/bin/astra-rl.js", import.meta.url));
const settings = [`training.trainingSteps=${values.steps}`, ...values.set].flatMap((each) => ["--set", each]);
const child = spawn(
  process.execPath,
  [program, "train", configuration, "--run-dir", run, "--quiet", ...settings],
  {
    stdio: ["ignore", "ignore", "inherit"],
  },
);

interface Sample {
  /** Finished steps. */
  step: number;
  mebibytes: number;
}
const samples: Sample[] = [];
const timer = setInterval(() => {
  let status: string;
  try {
    status = readFileSync(`/proc/${String(child.pid)}/status`, "utf8");
  } catch {
    return; // it has just exited
  }
  const step = existsSync(metrics) ? readFileSync(metrics, "utf8").split("\n").length - 1 : 0;
  const kibibytes = /VmRSS:\s+(\d+)/.exec(status)?.[1];
  if (kibibytes !== undefined) samples.push({ step, mebibytes: Number(kibibytes) / 1024 });
}, 250);

child.on("close", (code) => {
  clearInterval(timer);
  rmSync(folder, { recursive: true, force: true });
  if (code !== 0) {
    console.error(`the run exited with code ${String(code)}: no figures`);
    process.exitCode = 1;
    return;
  }
  const steps = Number(values.steps);
  const width = Math.max(1, Math.ceil(steps / 10));
  console.log("steps finished   mean MiB   greatest MiB   samples");
  for (let from = 0; from < steps; from += width) {
    const own = samples
      .filter(({ step }) => step >= from && step < from + width)
      .map((each) => each.mebibytes);
    if (own.length === 0) continue;
    const mean = own.reduce((sum, each) => sum + each, 0) / own.length;
    const row = [
      `${from}–${Math.min(steps, from + width) - 1}`,
      mean.toFixed(1),
      Math.max(...own).toFixed(1),
    ];
    console.log(
      `${row[0]!.padEnd(14)} ${row[1]!.padStart(10)} ${row[2]!.padStart(14)} ${String(own.length).padStart(9)}`,
    );
  }
});
