import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { liveTensors } from "@astra-rl/torch";
import { expect, test } from "vitest";
import { makeScorer } from "@astra-rl/assembly";
import { parseEvaluationRecord, parseRunRecord } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { published, publishedFolder } from "../../../lm/test/golden/published.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();

test("score gives score and labels of each text by a custom classifier", async () => {
  const { folder, rows } = published.find(({ variant }) => variant === "multilingual")!;
  writeFileSync(path("texts.jsonl"), rows.map(({ text }) => JSON.stringify({ text })).join("\n"));
  const before = liveTensors();
  const spec = `{type: classifier, model: ${folder}, activation: sigmoid, label: LABEL_3, batchSize: 5}`;
  const { code, out } = await runCommand(
    "score",
    "--scorer",
    spec,
    "--input",
    path("texts.jsonl"),
    "--quiet",
  );
  expect(code).toBe(0);
  const scores = out
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { score: number; labels: Record<string, number> });
  expect(scores).toHaveLength(rows.length);
  for (const [index, { score, labels }] of scores.entries()) {
    expect(Object.keys(labels)).toEqual(rows[index]!.sigmoid.map((_, label) => `LABEL_${label}`));
    expect(score).toBe(labels["LABEL_3"]);
    for (const [label, value] of Object.values(labels).entries()) {
      expect(Math.abs(value - rows[index]!.sigmoid[label]!)).toBeLessThan(1e-5);
    }
  }
  expect(liveTensors()).toBe(before);
});

/** A run of a second that is judged by a copy of a Detoxify checkpoint beside its configuration. */
function configuration(scorer = "{type: detoxify, model: judge}"): string {
  if (!existsSync(path("judge"))) cpSync(publishedFolder("original"), path("judge"), { recursive: true });
  writeFileSync(path("prompts.json"), JSON.stringify(["Hello.", "The lamp is warm."]));
  writeFileSync(
    path("run.yaml"),
    `models: {tester: ${goldenFolder}, target: ${goldenFolder}}
prompts: {train: prompts.json, dev: prompts.json, test: prompts.json}
scorer: ${scorer}
sampler: {width: 2, depth: 1}
generation: {tester: {maxNewTokens: 3}, target: {maxNewTokens: 3}}
training: {trainingSteps: 1, evaluateEvery: 0, batchSize: 2}
`,
  );
  return path("run.yaml");
}

test("a run and its evaluation record their scorer", async () => {
  const before = liveTensors();
  const train = await runCommand("train", configuration(), "--run-dir", path("run"), "--quiet");
  expect(train.err).toBe("");
  expect(train.code).toBe(0);
  const { models } = parseRunRecord(readFileSync(path("run", "run.json"), "utf8"));
  const digest = createHash("sha256")
    .update(readFileSync(path("judge", "pytorch_model.bin")))
    .digest("hex");
  // A folder is relative to the file that names it.
  expect(models["scorer"]).toMatchObject({ model: path("judge"), files: { "pytorch_model.bin": digest } });
  expect(Object.keys(models["scorer"]!.files)).toEqual(expect.arrayContaining(["config.json", "vocab.txt"]));

  const evaluation = await runCommand("eval", path("run.yaml"), "--json", "--quiet");
  expect(evaluation.code).toBe(0);
  const { measured } = parseEvaluationRecord(evaluation.out);
  expect(measured!.scorer.models).toEqual([models["scorer"]]);
  expect(liveTensors()).toBe(before);
});

test("a scorer from the hub is recorded by its id", async () => {
  const run = await runCommand(
    "train",
    configuration("{type: detoxify}"),
    "--run-dir",
    path("run"),
    "--quiet",
  );
  // There is no connection to the hub.
  expect(run.err).toMatch(/unitary\/toxic-bert: there is no such folder; as a model id: /);
  expect(run.code).toBe(2);
});

test.each([
  [
    "{type: detoxify, category: rude}",
    /run\.yaml:3:\d+: scorer\.category must be one of toxicity, .* \(those of original\), got "rude"/,
  ],
  [
    "{type: detoxify, variant: large}",
    /scorer\.variant must be "original", "unbiased" or "multilingual", got "large"/,
  ],
  ["{type: classifier}", /scorer\.model is required \(a string/],
  [
    "{type: classifier, model: judge, label: 1.5}",
    /scorer\.label must be a whole number of at least 0, got 1\.5/,
  ],
  [
    "{type: classifier, model: judge, activation: tanh}",
    /scorer\.activation must be "sigmoid" or "softmax", got "tanh"/,
  ],
  [
    "{type: classifier, model: judge}",
    /label must say which of its labels is the score: 0: toxic, 1: severe_toxic/,
  ],
  [
    "{type: detoxify, model: judge, variant: unbiased}",
    /must have a label toxicity, as Detoxify's unbiased has/,
  ],
])("%s is refused with exit code 2", async (scorer, message) => {
  const { code, err } = await runCommand("train", configuration(scorer), "--run-dir", path("run"), "--quiet");
  expect(err).toMatch(message);
  expect(err.trimEnd().split("\n")).toHaveLength(1);
  expect(code).toBe(2);
});

const LONG = "The lamp is warm. ".repeat(400);

test("score reports which texts the scorer truncates", async () => {
  const texts = ["The lamp is warm.", LONG, `${LONG}You fool.`];
  writeFileSync(path("long.jsonl"), texts.map((text) => JSON.stringify({ text })).join("\n"));
  const spec = `{type: classifier, model: ${publishedFolder("original")}, label: 0}`;
  const { code, err, json } = await runCommand("score", "--scorer", spec, "--input", path("long.jsonl"));
  expect(code).toBe(0);
  expect(json<{ cut?: boolean }>().map(({ cut }) => cut)).toEqual([undefined, true, true]);
  expect(err).toContain(
    "score: 2 of 3 texts are longer than the scorer's window; only a part of them was scored",
  );
});

test("logprobs reports how many tokens of a context do not fit the model's window", async () => {
  const rows = [
    { context: "The lamp", continuation: " is warm." },
    { context: LONG, continuation: " is warm." },
  ];
  writeFileSync(path("rows.jsonl"), rows.map((row) => JSON.stringify(row)).join("\n"));
  const { code, err, json } = await runCommand(
    "logprobs",
    "--model",
    "embedded:chatter",
    "--input",
    path("rows.jsonl"),
  );
  expect(code).toBe(0);
  const [short, long] = json<{ contextIds: number[]; continuationIds: number[]; cut?: number }>();
  expect(short!.cut).toBeUndefined();
  // Its window is of 192 tokens.
  expect(long!.contextIds.length + long!.continuationIds.length).toBe(192);
  expect(long!.cut).toBeGreaterThan(1000);
  expect(err).toContain("logprobs: 1 of 2 contexts are longer than the model's window");
  expect((await runCommand("logprobs", "--help")).out).toMatch(
    /SentencePiece tokenizer begins each text with a space/u,
  );
});

test("an evaluation counts texts that its scorer truncates, in its record, its report and a warning", async () => {
  const before = liveTensors();
  // The context window of the judge, as its tokenizer states it.
  const file = configuration("{type: detoxify, model: short}");
  cpSync(publishedFolder("original"), path("short"), { recursive: true });
  const settings = path("short", "tokenizer_config.json");
  const stated = JSON.parse(readFileSync(settings, "utf8")) as object;
  writeFileSync(settings, JSON.stringify({ ...stated, model_max_length: 3 }));
  const out = path("cut.json");
  // Of three tokens it reads too little of the canary's texts, too.
  const accept = ["--accept", "harmless-flagged,target-silent,target-echoes"];
  const { out: shown, err } = await runCommand("eval", file, "--output", out, ...accept);
  const { summary, details } = parseEvaluationRecord(readFileSync(out, "utf8"));
  const turns = details.flatMap(({ per_turn }) => per_turn);
  const cut = (which: "probe" | "response") => turns.filter((turn) => turn.cut?.includes(which)).length;
  expect([summary.n_cut_probes ?? 0, summary.n_cut_responses ?? 0]).toEqual([cut("probe"), cut("response")]);
  expect(summary.n_cut_responses).toBeGreaterThan(0);
  expect(shown).toContain("probes, responses read in part only");
  expect(err).toContain("the scorer read only a part of");
  const whole = await runCommand("eval", configuration(), "--json", ...accept);
  expect([whole.err, parseEvaluationRecord(whole.out).summary.n_cut_responses]).toEqual([
    expect.not.stringContaining("only a part"),
    undefined,
  ]);
  expect(liveTensors()).toBe(before);
});

test("a scorer that does not answer is reported with other warnings", async () => {
  const onWarning = () => {};
  const section = { type: "keyword", entries: [{ term: "fool" }] };
  const scorer = await makeScorer(section, { hub: { onWarning } });
  expect(scorer.onSilence).toBe(onWarning);
  scorer.dispose();
});
