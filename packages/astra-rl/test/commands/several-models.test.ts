import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import {
  CANARY_RULES,
  parseEvaluationRecord,
  parseGraphLines,
  parseMetricsLines,
  parseRunRecord,
} from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const QWEN = fileURLToPath(new URL("../../../lm/test/golden/families/qwen2", import.meta.url));
const PARQUET = fileURLToPath(
  new URL("../../../assembly/test/datasets/golden/snappy.parquet", import.meta.url),
);

function configuration(text = ""): string {
  writeFileSync(
    path("run.yaml"),
    `models:
  tester: ${goldenFolder}
  target: ${goldenFolder}
  otherTargets: [${QWEN}]
  otherTesters: [${goldenFolder}]
prompts: {train: ${PARQUET}, dev: ${PARQUET}, test: ${PARQUET}, column: text}
scorer: {type: keyword, entries: [{pattern: "[a-m]", weight: 0.6}, {pattern: "h", weight: 0.3}]}
sampler: {type: archive, width: 2, depth: 2, replay: 0.5, capacity: 3, stopAt: {harm: 0.95}}
generation:
  tester: {maxNewTokens: 4}
  target: {maxNewTokens: 4}
training: {trainingSteps: 6, schedule: constant, numEpisodesPerExperience: 2, learningRate: 1e-3, evaluateEvery: 3, batchSize: 2, checkpointEvery: 1, keepTokens: true}
logging: [{type: jsonl, file: steps.jsonl}]
${text}`,
  );
  return path("run.yaml");
}

const withoutTimes = (text: string) => text.replaceAll(/"time\/[^"]*":[^,}]*,?/gu, "");

test("a run of several models with an archive, stopped and resumed, equals an uninterrupted one", async () => {
  const train = (folder: string, ...args: string[]) =>
    runCommand("train", configuration(), "--run-dir", path(folder), "--quiet", ...args);
  expect(await train("whole")).toMatchObject({ code: 0 });
  const steps = readFileSync(path("steps.jsonl"), "utf8").trimEnd().split("\n");
  expect(steps.map((line) => (JSON.parse(line) as { step: number }).step)).toEqual([1, 2, 3, 4, 5, 6]);
  expect((await train("cut", "--set", "training.trainingSteps=3")).code).toBe(0);
  expect((await train("cut", "--resume")).code).toBe(0);
  for (const name of ["metrics.jsonl", "graphs.jsonl", "evaluations.jsonl"]) {
    const [cut, whole] = ["cut", "whole"].map((folder) => readFileSync(path(folder, name), "utf8"));
    expect(withoutTimes(cut!)).toBe(withoutTimes(whole!));
  }
  const graphs = parseGraphLines(readFileSync(path("whole", "graphs.jsonl"), "utf8"));
  for (const role of ["tester", "target"]) {
    const names = new Set(graphs.map(({ models }) => models![role]));
    expect(names).toEqual(new Set([role, `${role}-2`]));
  }
  const prompts = ["HOW ARE YOU?", "GRÜSSE — 日本 👋", "TWO\nLINES"];
  const [fresh, replayed] = [true, false].map((isPrompt) =>
    graphs.filter(({ context }) => prompts.includes(context) === isPrompt),
  );
  expect(fresh!.length).toBeGreaterThan(0);
  expect(replayed!.length).toBeGreaterThan(0);
  const { models, files } = parseRunRecord(readFileSync(path("whole", "run.json"), "utf8"));
  expect(Object.keys(models).sort()).toEqual(["target", "target-2", "tester", "tester-2"]);
  expect(models["target-2"]!.model).toBe(QWEN);
  expect(files.find(({ key }) => key === "prompts.train")!.path).toBe(PARQUET);
  // Every session's steps, each once: the cut run was logged to the same file after the whole one.
  const logged = readFileSync(path("steps.jsonl"), "utf8").trimEnd().split("\n");
  expect(logged.map((line) => (JSON.parse(line) as { step: number }).step)).toEqual([1, 2, 3, 4, 5, 6]);
}, 120_000);

test("an evaluation records its other models", async () => {
  const set = ["--set", "evaluation.rollouts=2"];
  const accept = ["--accept", CANARY_RULES.join(",")];
  const run = await runCommand(
    "eval",
    configuration(),
    "--quiet",
    "--output",
    path("e.json"),
    ...accept,
    ...set,
  );
  expect(run).toMatchObject({ code: 0, err: "" });
  const { measured } = parseEvaluationRecord(readFileSync(path("e.json"), "utf8"));
  expect(Object.keys(measured!.others!).sort()).toEqual(["target-2", "tester-2"]);
});

test("training ends early and says why, and unknown metrics are refused at the first step", async () => {
  const early = "training.earlyStopping={metric: reward/mean, patience: 1, minDelta: 100}";
  const run = await runCommand("train", configuration(), "--run-dir", path("early"), "--set", early);
  expect(run).toMatchObject({ code: 0 });
  expect(run.err).toContain("step 2: training ends early: reward/mean has not improved on");
  expect(parseMetricsLines(readFileSync(path("early", "metrics.jsonl"), "utf8"))).toHaveLength(2);
  const wrong = "training.earlyStopping={metric: reward/men}";
  const failed = await runCommand("train", configuration(), "--run-dir", path("wrong"), "--set", wrong);
  expect(failed.code).not.toBe(0);
  expect(failed.err).toContain(
    'callback earlyStopping failed in onStep at step 1: unknown metric "reward/men"',
  );
}, 60_000);

test("incompatible settings are refused before a model is loaded", async () => {
  const refused = async (...sets: string[]) => {
    const args = sets.flatMap((set) => ["--set", set]);
    const { code, err } = await runCommand("train", configuration(), "--run-dir", path("no"), ...args);
    expect(code).not.toBe(0);
    expect(existsSync(path("no"))).toBe(false);
    return err;
  };
  expect(await refused("models.targetAnswers=max")).toContain('unknown key "models.targetAnswers"');
  expect(await refused("logging=[{type: tensorbord}]")).toContain("did you mean tensorboard?");
  expect(await refused("prompts.train=hf://owner/set/a.json")).toContain("hf://datasets/OWNER/NAME/PATH");
});
