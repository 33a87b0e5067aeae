import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it, vi } from "vitest";
import { statistics } from "@astra-rl/analysis";
import { parseEvaluationLine, LOCK_FILE } from "@astra-rl/records";
import { chatterRun } from "../../method/test/support/chatter-run.js";
import { runCommand } from "../../astra-rl/test/support/run-command.js";

const PROGRAM = fileURLToPath(new URL("../../astra-rl/bin/astra-rl.js", import.meta.url));

function configured(steps = 1): { folder: string; file: string; runs: string } {
  const { folder, file } = chatterRun({
    training: `{ trainingSteps: ${steps}, evaluateEvery: 1, checkpointEvery: 1, numEpisodesPerExperience: 4 }`,
  });
  return { folder, file, runs: join(folder, "runs") };
}

it("trains a run for each seed and value, summarizes them, and keeps completed runs", async () => {
  const { file, runs } = configured();
  const options = [
    "--run-dir",
    runs,
    "--seeds",
    "1-2",
    "--grid",
    "training.learningRate=1e-4,3e-4",
    "--jobs",
    "2",
    "--quiet",
  ];
  const { code, out, err } = await runCommand("train", file, ...options);
  expect([code, err]).toEqual([0, ""]);
  expect(readdirSync(runs).sort()).toEqual([
    "learningRate=0.0001,seed-1",
    "learningRate=0.0001,seed-2",
    "learningRate=0.0003,seed-1",
    "learningRate=0.0003,seed-2",
  ]);
  const rates = [1, 2].map((seed) => {
    const path = join(runs, `learningRate=0.0003,seed-${seed}`, "evaluations.jsonl");
    return parseEvaluationLine(readFileSync(path, "utf8").trim().split("\n").at(-1)!, path).summary
      .success_rate!;
  });
  const middle = `${(100 * statistics.mean(rates)).toFixed(1)} %`;
  expect(out).toMatch(
    new RegExp(`^learningRate=0\\.0003 +2 +${middle.replace(".", "\\.")} \\(too few runs\\)`, "mu"),
  );
  // The same run as a single one.
  const alone = join(runs, "..", "alone");
  const settings = ["--set", "training.learningRate=1e-4", "--set", "seed=2", "--quiet"];
  await runCommand("train", file, "--run-dir", alone, ...settings);
  const weights = (run: string) => readFileSync(join(run, "checkpoints", "last", "model.safetensors"));
  expect(weights(join(runs, "learningRate=0.0001,seed-2")).equals(weights(alone))).toBe(true);
  const metrics = () => readFileSync(join(runs, "learningRate=0.0001,seed-1", "metrics.jsonl"), "utf8");
  const before = metrics();
  const again = await runCommand("train", file, ...options);
  expect([again.code, again.out]).toEqual([0, out]);
  expect(metrics()).toBe(before);
});

/** A sweep whose first run has started training. */
async function started(args: readonly string[], runs: string) {
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ["ignore", "ignore", "pipe"] });
  const metrics = join(runs, "seed-1", "metrics.jsonl");
  await vi.waitFor(
    () => expect(existsSync(metrics) && readFileSync(metrics, "utf8").length).toBeGreaterThan(10),
    {
      timeout: 20_000,
      interval: 20,
    },
  );
  return child;
}

it("ends immediately at the second signal, without loading the engine", async () => {
  const { file, runs } = configured(500);
  const child = await started(["train", file, "--run-dir", runs, "--seeds", "1,2"], runs);
  expect(readFileSync(`/proc/${child.pid}/maps`, "utf8")).not.toContain("libtorch");
  const ended = once(child, "exit");
  child.kill("SIGINT");
  for await (const data of child.stderr) if (String(data).includes("again to stop immediately")) break;
  child.kill("SIGINT");
  expect(await ended).toEqual([null, "SIGINT"]);
  // The run itself ends after the step in progress.
  await vi.waitFor(() => expect(existsSync(join(runs, "seed-1", LOCK_FILE))).toBe(false), 20_000);
}, 60_000);

it("resumes after a stop", async () => {
  const { file, runs } = configured(20);
  const args = ["train", file, "--run-dir", runs, "--seeds", "1,2"];
  const child = await started(args, runs);
  let err = "";
  child.stderr.on("data", (data: Buffer) => (err += data.toString()));
  child.kill("SIGINT");
  const code = await new Promise((resolve) => child.on("exit", resolve));
  expect([code, err]).toEqual([
    1,
    expect.stringContaining("run the same command again to resume the runs in"),
  ]);
  expect(existsSync(join(runs, "seed-2"))).toBe(false);
  await sleep(50);
  const done = await runCommand(
    ...(args as [string, ...string[]]),
    "--set",
    "training.trainingSteps=20",
    "--quiet",
  );
  expect(done.code).toBe(0);
  for (const seed of ["seed-1", "seed-2"]) {
    expect(
      readFileSync(join(runs, seed, "metrics.jsonl"), "utf8")
        .trim()
        .split("\n").length,
    ).toBe(20);
  }
}, 60_000);

it.each([
  [["--seeds", "5-1"], "must be whole numbers or ranges"],
  [["--seeds", "a"], "must be whole numbers or ranges"],
  [["--seeds", "1", "--grid", "training.learningRate="], "a key and its values"],
  [["--seeds", "1", "--grid", "1e-4"], "section.key=value"],
  [["--seeds", "0-999", "--grid", "seed=1,2"], "more than 1000"],
  [["--seeds", "1", "--resume", "--run-dir", "x"], "run the same command again to resume"],
  [["--seeds", "1", "--grid", "training.learningRat=1"], "learningRate"],
])("refuses %j", async (options, message) => {
  const { file, runs } = configured();
  const { code, err } = await runCommand("train", file, "--run-dir", runs, ...options);
  expect(code).not.toBe(0);
  expect(err).toContain(message);
});
