import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { expect, test } from "vitest";
import { parseEvaluationRecord, parseGraphLines, parseMetricsLines, parseRunRecord } from "@astra-rl/records";
import { temporaryFolder } from "../../../method/test/training/temporary-folder.js";
import { runCommand } from "../support/run-command.js";

/** Targets without weights: one is rude and tells no likelihood, one finds short probes more likely. */
const MODULE = `
import { Message } from "astra-rl";

export class Grumpy {
  name = "grumpy";
  role = "target";
  tellsLikelihood = false;
  work = { read: 0, generated: 0 };
  constructor({ insult = "you fool" } = {}, { generation, seed } = {}) {
    Object.assign(this, { insult, generation, seed });
  }
  async generate(conversations) {
    return conversations.map((conversation) => {
      if (/zebra/u.test(conversation)) return { stage: "target", message: "503", attempts: 1 };
      this.work.generated += 1;
      return new Message("target", \`Go away, \${this.insult} (\${this.generation?.maxNewTokens}, \${this.seed}). \`);
    });
  }
  release() {}
  dispose() {}
}

export class Knowing extends Grumpy {
  constructor(options = {}, parts = {}) {
    super(options, parts);
    this.name = options.name ?? "knowing";
  }
  tellsLikelihood = true;
  async logprobs(conversations, messages) {
    return messages.map(({ text }) => [-1 - text.length / 10]);
  }
}

export const made = { make: (options, parts) => new Knowing(options, parts) };
export const instance = new Grumpy();
export class Mute { generate() {} release() {} dispose() {} }
export class Unknowing extends Grumpy { tellsLikelihood = true }
export const number = 7;
`;

const yaml = (models: string) => `
seed: 5
models: { tester: "embedded:chatter", ${models} }
prompts: { train: ./prompts.txt, dev: ./prompts.txt, test: ./prompts.txt }
sampler: { width: 2, depth: 2 }
scorer: { type: keyword, entries: [{ term: fool, weight: 0.5 }] }
algorithm: { type: dpo, pairMargin: 0 }
generation: { tester: { maxNewTokens: 4 }, target: { maxNewTokens: 4 } }
training: { trainingSteps: 1, schedule: constant, evaluateEvery: 1, numEpisodesPerExperience: 2, checkpointEvery: 1 }
`;

function configuration(models: string): { folder: string; file: string } {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "bots.mjs"), MODULE.replace('"astra-rl"', JSON.stringify(SOURCE)));
  writeFileSync(join(folder, "prompts.txt"), "Hello. \nIt rained. \n");
  const file = join(folder, "run.yaml");
  writeFileSync(file, yaml(models));
  return { folder, file };
}

const SOURCE = new URL("../../src/index.ts", import.meta.url).href;

const values = (run: string) =>
  parseMetricsLines(readFileSync(join(run, "metrics.jsonl"), "utf8")).map((step) =>
    Object.fromEntries(Object.entries(step).filter(([key]) => !key.startsWith("time/"))),
  );

test.each([
  ["without likelihood", "target: ./bots.mjs#Grumpy, likelihood: embedded:chatter", "you fool (4, 5)"],
  ["with options", "target: {type: ./bots.mjs#Knowing, insult: fool}", "Go away, fool (4, 5). "],
  ["of a maker", "target: ./bots.mjs#made", "you fool (4, 5)"],
])("a target %s is trained against, resumed, rolled out and evaluated", async (_, models, said) => {
  const { folder, file } = configuration(models);
  const run = join(folder, "run");
  const trained = await runCommand("train", file, "--run-dir", run, "--quiet");
  expect(trained).toMatchObject({ err: "", code: 0 });
  const resolved = readFileSync(join(run, "config.resolved.yaml"), "utf8");
  expect(resolved).toContain(`type: ${folder}/bots.mjs#`);
  const more = ["--set", "training.trainingSteps=2", "--quiet"];
  expect(
    await runCommand("train", join(run, "config.resolved.yaml"), "--run-dir", run, "--resume", ...more),
  ).toMatchObject({ err: "", code: 0 });
  const whole = join(folder, "whole");
  await runCommand("train", file, "--run-dir", whole, ...more);
  expect(values(run)).toEqual(values(whole));
  const { models: recorded } = parseRunRecord(readFileSync(join(run, "run.json"), "utf8"), "run.json");
  expect(recorded["target"]!.model).toContain("bots.mjs#");
  expect(Object.values(recorded["target"]!.files)).toEqual([expect.stringMatching(/^[0-9a-f]{64}$/u)]);

  const rolled = await runCommand("rollout", file, "--episodes", "2", "--json", "--quiet");
  const turns = parseGraphLines(rolled.out).flatMap(({ children }) => children);
  expect(turns.length).toBeGreaterThan(0);
  for (const { response } of turns) expect(response).toContain(said);
  for (const { likelihood } of turns) expect(likelihood!.total).toBeLessThanOrEqual(0);

  const evaluation = join(folder, "evaluation.json");
  const tester = join(run, "checkpoints/last");
  // It says the same to all.
  const options = ["--tester", tester, "--output", evaluation, "--accept", "target-silent", "--quiet"];
  const evaluated = await runCommand("eval", file, ...options);
  expect(evaluated).toMatchObject({ err: "", code: 0 });
  const record = parseEvaluationRecord(JSON.parse(readFileSync(evaluation, "utf8")), "evaluation.json");
  expect(record.measured!.target).toEqual(recorded["target"]);
  expect(record.summary.n_scored).toBe(2);

  const reported = await runCommand("report", run, evaluation, "--format", "markdown", "--output", "-");
  expect(reported).toMatchObject({ err: "", code: 0 });
  expect(reported.out).toContain("## Run run");

  writeFileSync(join(folder, "bots.mjs"), `${readFileSync(join(folder, "bots.mjs"), "utf8")}// changed\n`);
  const other = await runCommand("train", file, "--run-dir", run, "--resume", ...more);
  expect(other.code).not.toBe(0);
  expect(other.err).toContain("models.target.type");
});

test("several targets, with paths relative to the file; a target as it is", async () => {
  const { file } = configuration(
    "target: ./bots.mjs#Knowing, otherTargets: [embedded:chatter, {type: ./bots.mjs#Knowing, insult: fool, name: other}]",
  );
  const rolled = await runCommand("rollout", file, "--episodes", "8", "--json", "--quiet");
  expect(rolled.err).toBe("");
  const said = new Set(
    parseGraphLines(rolled.out).flatMap(({ children }) => children.map(({ response }) => response)),
  );
  expect(said.has("Go away, fool (4, 5). ")).toBe(true);
  expect(said.has("Go away, you fool (4, 5). ")).toBe(true);
  expect(said.size).toBeGreaterThan(2);

  const alike = configuration("target: ./bots.mjs#Knowing, otherTargets: [./bots.mjs#Knowing]").file;
  const ambiguous = await runCommand("rollout", alike, "--episodes", "1", "--quiet");
  expect(ambiguous.err).toContain('two are named "knowing"; rename one');

  const shared = configuration("target: ./bots.mjs#instance, likelihood: embedded:chatter").file;
  const once = await runCommand("rollout", shared, "--episodes", "1", "--json", "--quiet");
  expect(once).toMatchObject({ err: "", code: 0 });

  const missing = configuration("target: embedded:chatter, otherTargets: [./none]");
  const refused = await runCommand("rollout", missing.file, "--quiet");
  expect(refused.err).toContain(join(missing.folder, "none"));
});

test("init writes a custom target relative to the file", async () => {
  const { folder } = configuration("target: embedded:chatter");
  const file = join(folder, "made.yaml");
  const bot = `${relative(process.cwd(), join(folder, "bots.mjs"))}#Grumpy`;
  expect(await runCommand("init", file, "--target", bot, "--scorer", "embedded")).toMatchObject({ code: 0 });
  expect(readFileSync(file, "utf8")).toContain("  target: ./bots.mjs#Grumpy\n");
});

test("a missing or unsuitable export is reported with its position", async () => {
  const refused = async (models: string) => {
    const { file, folder } = configuration(models);
    const { err, code } = await runCommand("rollout", file, "--episodes", "1", "--quiet");
    expect(code).not.toBe(0);
    expect(err.trim().split("\n")).toHaveLength(1);
    return err.replaceAll(folder, "DIR");
  };
  const place = "DIR/run.yaml:3:39: models.target";
  expect(await refused("target: ./none.mjs#Bot")).toContain(
    `${place}.type: there is no such file: DIR/none.mjs`,
  );
  expect(await refused("target: ./bots.mjs#Grumpi")).toContain(
    `${place}.type: DIR/bots.mjs exports no "Grumpi"; did you mean Grumpy?`,
  );
  expect(await refused("target: ./bots.mjs#number")).toContain(
    `${place}.type: DIR/bots.mjs#number: for a target, must be`,
  );
  expect(await refused("target: {type: grumpy}")).toContain(
    'or an export of a module such as ./file.js#name, got "grumpy"',
  );
  expect(await refused("target: ./bots.mjs#Mute")).toContain("DIR/bots.mjs#Mute: must make a Model");
  expect(await refused("target: ./bots.mjs#Unknowing")).toContain("must make a Model");
  expect(await refused("target: ./bots.mjs#Knowing, targetDevice: cpu")).toContain(
    "targetDevice is for checkpoints, but every target is a model of another kind; leave it out",
  );
  // No model computes likelihoods.
  expect(await refused("target: ./bots.mjs#Grumpy")).toContain(
    'the reward\'s term "nll" needs the likelihood of probes, which this target does not provide; give a model as ' +
      "likelihood (models.likelihood in a configuration)",
  );
});
