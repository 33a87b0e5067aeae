import { readFileSync, rmSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

const SMALL = [
  "training.trainingSteps=1",
  "training.schedule=constant",
  "training.numEpisodesPerExperience=1",
  "training.evaluateEvery=0",
  "sampler.depth=1",
  "generation.tester.maxNewTokens=3",
  "generation.target.maxNewTokens=3",
  "scorer={type: keyword, entries: [{pattern: '[a-m]'}]}",
];

async function trained(name: string, settings: readonly string[], ...rest: string[]) {
  await runCommand("init", path("run.yaml"), "--tester", goldenFolder, "--target", goldenFolder, "--force");
  const sets = [...SMALL, ...settings].flatMap((text) => ["--set", text]);
  const run = await runCommand(
    "train",
    path("run.yaml"),
    "--run-dir",
    path(name),
    "--quiet",
    ...sets,
    ...rest,
  );
  expect(run.err).toBe("");
  const resolved = parse(readFileSync(path(name, "config.resolved.yaml"), "utf8")) as {
    training: { learningRate: number };
  };
  const rates = readFileSync(path(name, "metrics.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { learning_rate: number }).learning_rate);
  return { recorded: resolved.training.learningRate, rates };
}

// The checkpoint's hidden size is 40.
test.each([
  ["a policy gradient", ["algorithm={type: rloo}"], 0.012 / 40],
  ["a preference", ["algorithm={type: dpo}"], 0.012 / 40],
  ["ORPO, which has no baseline", ["algorithm={type: orpo}"], (0.4 * 0.012) / 40],
  [
    "an adapter, which is at the limit",
    ["algorithm={type: rloo}", "models.lora.targetModules=[c_attn]"],
    1e-3,
  ],
  ["one's own", ["training.learningRate=2e-5"], 2e-5],
])("the learning rate of %s is recorded as a number, and used", async (_, settings, expected) => {
  rmSync(path("run"), { recursive: true, force: true });
  const { recorded, rates } = await trained("run", settings);
  expect(recorded).toBeCloseTo(expected, 12);
  expect(rates).toEqual([recorded]);
});

test("a resumed run keeps its initial rate, even if auto now resolves to another", async () => {
  const settings = ["algorithm={type: rloo}"];
  const { recorded } = await trained("resumed", [...settings, "training.learningRate=1e-4"]);
  expect(recorded).toBe(1e-4);
  const { rates } = await trained("resumed", [...settings, "training.trainingSteps=2"], "--resume");
  expect(rates).toEqual([1e-4, 1e-4]);
});
