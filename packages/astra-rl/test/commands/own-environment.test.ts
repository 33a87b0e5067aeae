import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { parseEvaluationRecord, parseGraphLines, parseMetricsLines } from "@astra-rl/records";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

const source = (path: string) => JSON.stringify(pathToFileURL(join(import.meta.dirname, path)).href);

/** An environment of single letters: a tester with one table of logits, no language model anywhere. */
const MODULE = `
import { BigramSystem } from ${source("../../../method/test/support/bigram-system.ts")};

export class Letters extends BigramSystem {
  constructor({ start = "x" }, { scorer, purpose }) {
    super();
    this.start = start;
    this.scorer = scorer;
    this.purpose = purpose;
  }
  startFrom(prompt) {
    return this.start + prompt;
  }
}
`;

const SHOUTING = `export const vowels = (text) => [...text].filter((letter) => letter === "a").length / Math.max(1, text.length);`;

const YAML = `
system: { type: ./letters.ts#Letters, start: y }
scorer: { type: ./judge.js#vowels }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 3, depth: 2 }
training: { trainingSteps: 2, schedule: constant, learningRate: 0.1, evaluateEvery: 1 }
`;

function environment(yaml = YAML): { folder: string; file: string } {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "letters.ts"), MODULE);
  writeFileSync(join(folder, "judge.js"), SHOUTING);
  writeFileSync(join(folder, "package.json"), '{"type": "module"}');
  writeFileSync(join(folder, "prompts.txt"), "u\nv\n");
  const file = join(folder, "run.yaml");
  writeFileSync(file, yaml);
  return { folder, file };
}

test("an environment without language models is trained, resumed, rolled out, evaluated and reported", async () => {
  const { folder, file } = environment();
  const run = join(folder, "run");
  const trained = await runCommand("train", file, "--run-dir", run, "--quiet");
  // The only warning is about weights that other tools cannot load.
  const warning = /^training: checkpoints contain only the parameters\(\) of Letters, [^\n]*\n$/u;
  expect(trained.err).toMatch(warning);
  expect(trained.code).toBe(0);
  const steps = parseMetricsLines(readFileSync(join(run, "metrics.jsonl"), "utf8"));
  expect(steps).toHaveLength(2);
  expect(steps.map((step) => typeof step["evaluation/final_reward"])).toEqual(["number", "number"]);
  const graphs = parseGraphLines(readFileSync(join(run, "graphs.jsonl"), "utf8"));
  expect(graphs.every(({ context }) => context === "yu" || context === "yv")).toBe(true);
  expect(existsSync(join(run, "checkpoints/last/state/parameters.safetensors"))).toBe(true);
  const resolved = readFileSync(join(run, "config.resolved.yaml"), "utf8");
  expect(resolved).toContain("letters.ts#Letters");

  const resumed = await runCommand(
    "train",
    join(run, "config.resolved.yaml"),
    "--run-dir",
    run,
    "--resume",
    "--quiet",
    "--set",
    "training.trainingSteps=3",
  );
  expect(resumed.err).toMatch(warning);
  const whole = join(folder, "whole");
  await runCommand("train", file, "--run-dir", whole, "--quiet", "--set", "training.trainingSteps=3");
  const values = (path: string) =>
    parseMetricsLines(readFileSync(join(path, "metrics.jsonl"), "utf8")).map((step) =>
      Object.fromEntries(Object.entries(step).filter(([key]) => !key.startsWith("time/"))),
    );
  expect(values(run)).toEqual(values(whole));

  const rolled = await runCommand("rollout", file, "--episodes", "2", "--json", "--quiet");
  expect(parseGraphLines(rolled.out)).toHaveLength(2);

  const evaluation = join(folder, "eval.json");
  const evaluated = await runCommand("eval", file, "--output", evaluation, "--quiet");
  expect(evaluated.err).toBe("");
  const record = parseEvaluationRecord(JSON.parse(readFileSync(evaluation, "utf8")), "eval.json");
  expect(record.summary.n_rollouts).toBe(2);
  expect(record.measured!.target.model).toContain("letters.ts#Letters");

  const longer = join(folder, "longer");
  await runCommand("train", file, "--run-dir", longer, "--quiet", "--set", "training.trainingSteps=15");
  const tester = join(longer, "checkpoints/last");
  const better = await runCommand("eval", file, "--tester", tester, "--json", "--quiet");
  expect(better.err).toBe("");
  const [trained15] = better.json<{ summary: { mean_reward: number }; measured: typeof record.measured }>();
  expect(trained15!.measured!.tester.model).toBe(tester);
  expect(Object.keys(trained15!.measured!.tester.files)).toEqual(["state/parameters.safetensors"]);
  expect(trained15!.summary.mean_reward).toBeGreaterThan(record.summary.mean_reward!);

  const reported = await runCommand("report", run, evaluation, "--format", "markdown", "--output", "-");
  expect(reported.err).toBe("");
  expect(reported.code).toBe(0);
  expect(reported.out).toContain("## Run run");
});

test("missing or mistyped options are reported with their line", async () => {
  const refused = async (yaml: string) => (await runCommand("rollout", environment(yaml).file)).err;
  expect(await refused("system: { type: letters }\n")).toContain(
    'system.type must be an export of a module such as ./file.js#name, got "letters"',
  );
  expect(await refused("system: { type: ./letters.ts#Lettres }\n")).toContain("did you mean Letters?");
  expect(await refused("system: { type: ./judge.js#vowels }\n")).toContain(
    "for a system, must be an object with make",
  );
  expect(await refused("seed: 1\n")).toMatch(/models.* is required/u);
});
