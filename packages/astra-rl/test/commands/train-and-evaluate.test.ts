import { readFileSync, writeFileSync } from "node:fs";
import { CANARY_RULES } from "@astra-rl/records";
import { expect, test } from "vitest";
import { evaluate, train, type TrainOptions } from "@astra-rl/assembly";
import { DPO } from "@astra-rl/method";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const SETTINGS = {
  models: { tester: goldenFolder, target: goldenFolder },
  scorer: { type: "keyword", entries: [{ pattern: "[a-m]", weight: 0.6 }] },
  sampler: { width: 2, depth: 1 },
  generation: { tester: { maxNewTokens: 3 }, target: { maxNewTokens: 3 } },
  training: {
    trainingSteps: 2,
    schedule: "constant" as const,
    numEpisodesPerExperience: 2,
    evaluateEvery: 0,
    learningRate: 1e-3,
  },
};
const PROMPTS = ["Hello.", "The lamp is warm."];

function configuration(): string {
  writeFileSync(path("prompts.json"), JSON.stringify(PROMPTS));
  const file = "./prompts.json";
  // JSON is YAML.
  writeFileSync(
    path("run.yaml"),
    JSON.stringify({ ...SETTINGS, prompts: { train: file, dev: file, test: file } }),
  );
  return path("run.yaml");
}

const withoutTimes = (text: string) => text.replaceAll(/"time\/[^"]*":[^,}]*,?/gu, "");
const lines = (folder: string, name = "metrics.jsonl") =>
  withoutTimes(readFileSync(path(folder, name), "utf8"));
const logger = { info: () => {}, warn: () => {} };

test("train writes what the command writes, from a file and from keys", async () => {
  const file = configuration();
  expect((await runCommand("train", file, "--run-dir", path("command"), "--quiet")).err).toBe("");
  await train({ configuration: file, runDirectory: path("file"), logger });
  await train({ ...SETTINGS, prompts: PROMPTS, runDirectory: path("keys"), logger });
  for (const name of ["metrics.jsonl", "graphs.jsonl"]) {
    expect(lines("file", name)).toBe(lines("command", name));
    expect(lines("keys", name)).toBe(lines("command", name));
  }
  const resolved = (folder: string) => readFileSync(path(folder, "config.resolved.yaml"), "utf8");
  expect(resolved("file")).toBe(resolved("command"));
  const shown = await runCommand("report", path("keys"), "--format", "markdown", "--output", "-");
  expect(shown).toMatchObject({ code: 0, err: "" });
});

test("evaluate gives the record that the command writes", async () => {
  const file = configuration();
  const command = ["eval", file, "--output", path("command.json"), "--quiet"];
  const shown = await runCommand(...command, "--accept", CANARY_RULES.join(","));
  expect(shown.err).toBe("");
  const record = await evaluate({
    configuration: file,
    output: path("library.json"),
    accept: CANARY_RULES,
    logger,
  });
  const written = readFileSync(path("library.json"), "utf8");
  expect(written).toBe(readFileSync(path("command.json"), "utf8"));
  expect(JSON.parse(written)).toEqual(JSON.parse(JSON.stringify(record)));
  const prompts = { train: PROMPTS, test: PROMPTS };
  const { summary, details } = await evaluate({ ...SETTINGS, prompts, accept: CANARY_RULES, logger });
  expect({ summary, details }).toEqual({ summary: record.summary, details: record.details });
});

test("the tester of a custom algorithm is evaluated by the command, and resumed by the program only", async () => {
  class Own extends DPO {}
  const given: TrainOptions = {
    configuration: configuration(),
    algorithm: ({ system }) => new Own(system),
    runDirectory: path("run"),
    logger,
  };
  await train(given);
  const resolved = path("run", "config.resolved.yaml");
  const tester = path("run", "checkpoints/last");
  const accept = ["--accept", CANARY_RULES.join(",")];
  const evaluated = await runCommand("eval", resolved, "--tester", tester, "--json", "--quiet", ...accept);
  // Nothing but the doubts that it accepts.
  expect(evaluated.code).toBe(0);
  expect(evaluated.err).toMatch(
    /^Doubtful \(harmless-flagged\): .*\nDoubtful \(prompts-of-training\): .*\n$/u,
  );
  const resumed = await runCommand(
    "train",
    resolved,
    "--run-dir",
    path("run"),
    "--resume",
    "--quiet",
    "--set",
    "training.trainingSteps=3",
  );
  expect(resumed.code).toBe(2);
  expect(resumed.err).toContain("algorithm: algorithm was made by the program of this run");
  expect((await train({ ...given, resume: true, training: { trainingSteps: 3 } })).step).toBe(3);
});
