import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { parseEvaluationRecord, parseRunRecord, type RunRecord } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const sha256 = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");

const PROMPTS = ["Hello.", "The lamp is warm."];

/** A run of a second that reads prompts and a word list of its own. */
function configuration(): string {
  mkdirSync(path("lists"), { recursive: true });
  writeFileSync(path("lists", "prompts.json"), JSON.stringify(PROMPTS));
  writeFileSync(path("lists", "words.json"), JSON.stringify([{ pattern: "h", weight: 0.6 }]));
  writeFileSync(
    path("run.yaml"),
    `seed: 5
models: {tester: ${goldenFolder}, target: ${goldenFolder}}
prompts: {train: lists/prompts.json, dev: lists/prompts.json}
scorer: {type: keyword, file: lists/words.json}
sampler: {width: 2, depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {trainingSteps: 1, schedule: constant, evaluateEvery: 0, batchSize: 2}
`,
  );
  return path("run.yaml");
}

const read = (): RunRecord => parseRunRecord(readFileSync(path("run", "run.json"), "utf8"));
const train = (...args: string[]) =>
  runCommand("train", configuration(), "--run-dir", path("run"), "--quiet", ...args);

test("a run records when, where and from which files it was made, with copies of small ones", async () => {
  const before = Date.now();
  expect((await train()).code).toBe(0);
  const { seed, models, files, sessions } = read();
  expect(seed).toBe(5);
  const weights = readFileSync(join(goldenFolder, "model.safetensors"));
  expect(models["tester"]!.files["model.safetensors"]).toBe(sha256(weights));
  expect(models["target"]).toEqual(models["tester"]);
  const byKey = new Map(files.map((file) => [file.key, file]));
  expect([...byKey.keys()].sort()).toEqual(["prompts.dev", "prompts.test", "prompts.train", "scorer.file"]);
  for (const [key, name] of [
    ["prompts.train", "prompts.json"],
    ["scorer.file", "words.json"],
  ] as const) {
    const original = readFileSync(path("lists", name));
    expect(byKey.get(key)).toMatchObject({ path: path("lists", name), sha256: sha256(original) });
    expect(readFileSync(path("run", byKey.get(key)!.copy!))).toEqual(original);
  }
  expect(byKey.get("prompts.test")).toMatchObject({ path: "embedded", copy: null });
  const [session] = sessions;
  expect(sessions).toHaveLength(1);
  expect(Date.parse(session!.started)).toBeGreaterThanOrEqual(before - 1);
  expect(session!.resumed_after).toBeNull();
  expect(session!.command[0]).toBe("astra-rl");
  expect(session!.engine.libtorch).toMatch(/^\d+\.\d+/);
  expect(session!.commit).toMatch(/^[0-9a-f]{40}(\+changes)?$/);
});

test("a resumed run adds a session and changes nothing else; its results equal those of an uninterrupted run", async () => {
  expect((await train()).code).toBe(0);
  const first = read();
  const copies = readdirSync(path("run", "inputs"));
  const resumed = await train("--resume", "--set", "training.trainingSteps=2", "--json");
  expect(resumed.code).toBe(0);
  expect(resumed.json<{ step: number }>().map(({ step }) => step)).toEqual([2]);
  const second = read();
  expect(second).toEqual({ ...first, sessions: [first.sessions[0], second.sessions[1]] });
  expect(second.sessions[1]!.resumed_after).toBe(1);
  expect(readdirSync(path("run", "inputs"))).toEqual(copies);
  const weights = readFileSync(path("run", "checkpoints", "last", "model.safetensors"));
  rmSync(path("run"), { recursive: true });
  const whole = await train("--set", "training.trainingSteps=2", "--json");
  expect(whole.code).toBe(0);
  const strip = (text: string) => text.replaceAll(/"time\/[^,]+,/gu, "");
  expect(strip(whole.out).split("\n").slice(1).join("\n")).toBe(strip(resumed.out));
  expect(readFileSync(path("run", "checkpoints", "last", "model.safetensors"))).toEqual(weights);
});

test("a run without a run.json gets one when it is resumed", async () => {
  expect((await train()).code).toBe(0);
  rmSync(path("run", "run.json"));
  expect((await train("--resume", "--set", "training.trainingSteps=2")).code).toBe(0);
  expect(read().sessions.map(({ resumed_after }) => resumed_after)).toEqual([1]);
});

/** The canary's doubts about a tiny target and a list of words. */
const ACCEPTED = "harmless-flagged,target-silent,target-echoes";

test("an evaluation records its tester, target, scorer, prompts, generation settings and seed", async () => {
  const args = [
    "--split",
    "dev",
    "--accept",
    ACCEPTED,
    "--quiet",
    "--output",
    path("evaluation.json"),
    "--set",
    "evaluation.depth=2",
  ];
  expect((await runCommand("eval", configuration(), ...args)).code).toBe(0);
  const { measured } = parseEvaluationRecord(readFileSync(path("evaluation.json"), "utf8"));
  expect(measured).toMatchObject({
    tester: { model: goldenFolder },
    target: { model: goldenFolder },
    scorer: { type: "keyword", sha256: { "scorer.file": sha256(readFileSync(path("lists", "words.json"))) } },
    prompts: {
      split: "dev",
      count: 2,
      sha256: sha256(JSON.stringify(PROMPTS)),
      source: path("lists", "prompts.json"),
    },
    generation: { tester: { maxNewTokens: 3 }, target: { maxNewTokens: 3 } },
    sampler: { type: "ast", depth: 2 },
    seed: 5,
  });
  expect(measured!.tester.files["model.safetensors"]).toMatch(/^[0-9a-f]{64}$/);
});

test("a scorer model is recorded with its identity, and its cache is not an input", async () => {
  const guard = fileURLToPath(new URL("../../../scorers/test/golden/llama-guard", import.meta.url));
  const weights = sha256(readFileSync(join(guard, "model.safetensors")));
  const scorer = `{type: max, scorers: [{type: llama-guard, model: ${guard}, cache: {file: ${path("scores.jsonl")}}}]}`;
  expect((await train("--set", `scorer=${scorer}`)).code).toBe(0);
  expect(read().models["scorer.scorers[0]"]!.files["model.safetensors"]).toBe(weights);
  expect(read().files.map(({ key }) => key)).not.toContain("scorer.scorers[0].cache.file");
  const args = [
    "--split",
    "dev",
    "--accept",
    ACCEPTED,
    "--quiet",
    "--output",
    path("evaluation.json"),
    "--set",
    `scorer=${scorer}`,
  ];
  expect((await runCommand("eval", configuration(), ...args)).code).toBe(0);
  const { measured } = parseEvaluationRecord(readFileSync(path("evaluation.json"), "utf8"));
  expect(measured!.scorer).toMatchObject({ models: [{ files: { "model.safetensors": weights } }] });
  expect(readFileSync(path("scores.jsonl"), "utf8").trimEnd().split("\n").length).toBeGreaterThan(1);
});

test("logging to TensorBoard writes an event file per session, and is off by default", async () => {
  expect((await train()).code).toBe(0);
  expect(existsSync(path("run", "tensorboard"))).toBe(false);
  for (const steps of [2, 3]) {
    const set = ["logging=[{type: tensorboard}]", `training.trainingSteps=${steps}`].flatMap((text) => [
      "--set",
      text,
    ]);
    expect((await train("--resume", ...set)).code).toBe(0);
  }
  const files = readdirSync(path("run", "tensorboard"));
  expect(files).toHaveLength(2);
  for (const name of files) {
    expect(readFileSync(path("run", "tensorboard", name)).includes("reward/mean")).toBe(true);
  }
});

test("a run resumed with other threads or instruction sets warns that results will differ, and what stays the same", async () => {
  expect((await train()).code).toBe(0);
  const same = await train("--resume", "--set", "training.trainingSteps=2");
  expect(same).toMatchObject({ code: 0, err: "" });
  const record = read();
  const { isa, threads } = record.sessions.at(-1)!.engine;
  Object.assign(record.sessions.at(-1)!.engine, { threads: threads + 2, isa: "sse" });
  writeFileSync(path("run", "run.json"), JSON.stringify(record));
  const other = await train("--resume", "--set", "training.trainingSteps=3");
  expect(other.code).toBe(0);
  expect(other.err).toContain(
    `computed on ${threads + 2} threads with sse so far, and resumes on ${threads} thread`,
  );
  expect(other.err).toContain("random draws, prompts and their order stay the same");
  expect(other.err).toContain(`OMP_NUM_THREADS=${threads + 2} ASTRA_ISA=sse`);
  expect(read().sessions.at(-1)!.engine).toMatchObject({ isa, threads });
});
