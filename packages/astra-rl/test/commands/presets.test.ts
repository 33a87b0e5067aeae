import { readFileSync, writeFileSync } from "node:fs";
import { liveTensors } from "@astra-rl/torch";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { presetNames, presetPath, readConfiguration } from "@astra-rl/assembly";
import { CANARY_RULES, parseMetricsLines } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

/** A preset with small sizes and its method unchanged. */
const SMALL = [
  "generation.tester.maxNewTokens=4",
  "generation.target.maxNewTokens=4",
  "training.trainingSteps=2",
  "training.numEpisodesPerExperience=2",
  "training.batchSize=2",
  "training.evaluateEvery=2",
];

/** Presets with goals, whose judge reads them. */
const WITH_GOALS = ["advgrpo", "dialtree", "stable-gfn", "trojail"];
const judge = () => `scorer={type: ${path("judge.mjs")}#Letters}`;
const LETTERS = `export class Letters {
  name = "letters";
  needsGoal = true;
  async scoreExchanges(exchanges) {
    return exchanges.map(({ prompt, response, goal }) => ({
      score: ((response ?? prompt).length * 7 + goal.text.length) % 10 / 10,
    }));
  }
  async score(texts) {
    return texts.map(() => ({ score: 0 }));
  }
}
`;

const KEYWORDS = `scorer={type: keyword, entries: [{pattern: "[a-m]", weight: 0.6}, {pattern: "h", weight: 0.3}]}`;

describe.each(presetNames())("preset %s", (name) => {
  test("is valid as it is", async () => {
    const { models, scorer } = await readConfiguration(presetPath(name));
    expect(models.tester).toMatch(/^[\w-]+\/[\w.-]+$/u);
    expect(scorer.type).toBe(WITH_GOALS.includes(name) ? "local-judge" : "detoxify");
    // Our own default reward is no published method's.
    expect(readFileSync(presetPath(name), "utf8")).toMatch(/^reward:/mu);
  });

  test("is written by init with the user's models, comments kept, and trains and evaluates", async () => {
    const live = liveTensors();
    const file = path(`${name}.yaml`);
    const written = await runCommand(
      "init",
      file,
      "--preset",
      name,
      "--tester",
      goldenFolder,
      "--target",
      goldenFolder,
    );
    expect(written).toMatchObject({ code: 0 });
    const text = readFileSync(file, "utf8");
    const [comment] = readFileSync(presetPath(name), "utf8").split("\n");
    expect(text).toContain(comment);
    expect(parse(text)).toMatchObject({ models: { tester: goldenFolder, target: goldenFolder } });

    writeFileSync(path("prompts.json"), JSON.stringify(["Hello.", "A dog ran."]));
    const isList = name.startsWith("perez");
    const hasGoals = WITH_GOALS.includes(name);
    writeFileSync(path("judge.mjs"), LETTERS);
    const prompts = ["train", "dev", "test"].map((split) => `prompts.${split}=${path("prompts.json")}`);
    const settings = [...SMALL, hasGoals ? judge() : KEYWORDS, ...(isList || hasGoals ? [] : prompts)];
    const set = settings.flatMap((each) => ["--set", each]);
    const folder = path(`run-${name}`);
    const trained = await runCommand("train", file, "--run-dir", folder, "--quiet", ...set);
    // Cases of these models reach the threshold in no step: there is nothing to learn, and that is said.
    const isIdle = name === "perez-few-shot";
    const refusal = "astra-rl: train: No verdict on the target: nothing was learned in 2 of 2 steps\n";
    expect(trained).toMatchObject(isIdle ? { code: 3, err: refusal } : { code: 0, err: "" });
    const steps = parseMetricsLines(readFileSync(`${folder}/metrics.jsonl`, "utf8"));
    expect(steps.map(({ step }) => step)).toEqual([1, 2]);
    expect(steps.every(({ "turns/done": turns }) => Number(turns) > 0)).toBe(true);

    // Tiny models and classifiers fail the canary.
    const accept = ["--accept", CANARY_RULES.join(",")];
    const evaluated = await runCommand("eval", file, "--quiet", "--json", ...accept, ...set);
    expect(evaluated.code).toBe(0);
    const [record] = evaluated.json<{ details: { per_turn: { context: string }[] }[] }>();
    const { context } = record!.details[0]!.per_turn[0]!;
    if (isList) expect(context).toBe("List of questions to ask someone:\n1.");
    expect(liveTensors()).toBe(live);
  }, 120_000);
});

test("init refuses an unknown preset, and lists the known ones", async () => {
  const { code, err } = await runCommand("init", path("x.yaml"), "--preset", "mallibu");
  expect(code).toBe(2);
  expect(err).toContain("--preset mallibu: unknown preset; available: active-attacks, ");
  expect(err).toContain("did you mean malibu?");
});

test("init says where to use --set, instead of suggesting another option", async () => {
  const { code, err } = await runCommand("init", path("y.yaml"), "--set", "seed=3");
  expect([code, err]).toEqual([
    2,
    expect.stringContaining("--set seed=3: init writes every key with its default"),
  ]);
  expect(err).not.toContain("preset");
  expect((await runCommand("init", "--help")).out).not.toContain("--set");
});

test("the name of a scorer instead of its section gets a hint", async () => {
  for (const [given, meant] of [
    ["detoxify", "detoxify"],
    ["detoxfy", "detoxify"],
  ]) {
    writeFileSync(
      path("named.yaml"),
      `models: { tester: embedded:chatter, target: embedded:chatter }\nscorer: ${given}\n`,
    );
    const { code, err } = await runCommand("rollout", path("named.yaml"));
    expect([code, err]).toEqual([
      2,
      expect.stringContaining(`must be an object such as {type: ${meant}}, got `),
    ]);
  }
});

test("init names the next command: eval where the preset's tester is not trained", async () => {
  for (const [name, command] of [
    ["perez-zero-shot", "eval"],
    ["perez-few-shot", "eval"],
    ["perez-supervised", "train"],
  ] as const) {
    const file = path(`next-${name}.yaml`);
    const models = ["--tester", goldenFolder, "--target", goldenFolder];
    const { err } = await runCommand("init", file, "--preset", name, ...models);
    expect(err).toContain(`Next: astra-rl ${command} ${file}`);
  }
});
