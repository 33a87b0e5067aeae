import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { liveTensors } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Score } from "@astra-rl/method";
import { published, publishedFolder } from "../../lm/test/golden/published.js";
import {
  BatchedScorer,
  ClassifierScorer,
  ClipScorer,
  KeywordScorer,
  MaxScorer,
  ScoreFile,
  type ClassifierScorerOptions,
} from "../src/index.js";
import { scorerContract } from "./contract/scorer.contract.js";

const model = publishedFolder("original");
const LABELS = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"];

let before: number;
beforeEach(() => void (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

/** The results of a scorer, which is then freed. */
async function scoresOf(options: ClassifierScorerOptions, texts: readonly string[], folder = model) {
  const scorer = await ClassifierScorer.load({ model: folder, ...options });
  try {
    return { scorer, scores: (await scorer.score(texts)) as Score[] };
  } finally {
    scorer.dispose();
  }
}

async function refusalOf(options: ClassifierScorerOptions, folder = model): Promise<string> {
  const error: unknown = await ClassifierScorer.load({ model: folder, ...options }).catch(
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(UsageError);
  return (error as UsageError).message;
}

describe.each(published)("ClassifierScorer on $variant", ({ folder, rows }) => {
  const texts = rows.map(({ text }) => text);

  it.each([["sigmoid"], ["softmax"], [undefined]] as const)(
    "gives the probabilities of transformers' pipeline: %s",
    async (activation) => {
      const { scorer, scores } = await scoresOf({ activation, label: 1, batchSize: 7 }, texts, folder);
      for (const [index, row] of rows.entries()) {
        const expected = row[activation ?? "default"];
        const { score, labels } = scores[index]!;
        expect(Object.keys(labels!)).toEqual(scorer.labelNames);
        for (const [place, value] of Object.values(labels!).entries()) {
          expect(Math.abs(value - expected[place]!)).toBeLessThan(1e-5);
        }
        expect(score).toBe(Object.values(labels!)[1]);
      }
    },
  );
});

describe("ClassifierScorer", () => {
  it("reports which texts it truncates, also through other scorers and a file of scores", async () => {
    const long = "The lamp is warm. ".repeat(400);
    const texts = ["The lamp is warm.", long, `${long}You fool.`];
    const scorer = await ClassifierScorer.load({ model, label: 0 });
    const outcomes = await scorer.scoreAndValidate(texts);
    expect(outcomes.map(({ cut }) => cut)).toEqual([undefined, true, true]);
    // Text beyond the window has no effect.
    expect(outcomes[2]!.score).toBeCloseTo(outcomes[1]!.score!, 6);
    const other = new KeywordScorer([{ term: "fool" }]);
    const folder = mkdtempSync(join(tmpdir(), "cut-"));
    const file = join(folder, "scores.jsonl");
    const cached = async () =>
      new BatchedScorer(new ClipScorer(new MaxScorer([other, scorer])), {
        file: await ScoreFile.open(file, "max", { limit: 10 }),
      });
    for (const again of [false, true]) {
      const all = await (await cached()).scoreAndValidate(texts);
      expect([again, all.map(({ cut }) => cut)]).toEqual([again, [undefined, true, true]]);
    }
    expect(readFileSync(file, "utf8").match(/"cut":true/gu)).toHaveLength(2);
    rmSync(folder, { recursive: true });
    scorer.dispose();
  });

  it("has the checkpoint's labels in its order; any of them is the score, by name or index", async () => {
    for (const [index, label] of LABELS.entries()) {
      const { scorer, scores } = await scoresOf({ label }, ["a"]);
      expect(scorer.labelNames).toEqual(LABELS);
      expect(scores[0]!.score).toBe(scores[0]!.labels![label]);
      expect((await scoresOf({ label: index }, ["a"])).scores).toEqual(scores);
    }
  });

  it("requires a label if there are several, and lists them", async () => {
    const listed = "0: toxic, 1: severe_toxic, 2: obscene, 3: threat, 4: insult, 5: identity_hate";
    expect(await refusalOf({})).toBe(`${model}: label must say which of its labels is the score: ${listed}`);
    expect(await refusalOf({ label: "rude" })).toBe(`${model}: has no label "rude"; it has ${listed}`);
    for (const label of [6, -1, 0.5])
      expect(await refusalOf({ label })).toMatch(`has no label ${label}; it has 0: toxic`);
  });

  it("refuses a batch of nothing", async () => {
    expect(await refusalOf({ label: 0, batchSize: 0 })).toMatch(
      /batchSize must be a whole number of at least 1, got 0/,
    );
  });

  it("explains what is wrong with a model", async () => {
    expect(await refusalOf({ label: 0 }, "nowhere")).toMatch(/nowhere: there is no such folder/);
  });
});

describe("what a checkpoint was trained for", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "classifier-"));
    cpSync(model, folder, { recursive: true });
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const configure = (changes: object) => {
    const path = join(folder, "config.json");
    const config = JSON.parse(readFileSync(path, "utf8")) as object;
    writeFileSync(path, JSON.stringify({ ...config, ...changes }));
  };
  const activationOf = async () => (await scoresOf({ label: 0 }, [], folder)).scorer.activation;

  it("decides between sigmoid and softmax, as in transformers", async () => {
    expect(await activationOf()).toBe("sigmoid");
    configure({ problem_type: null });
    expect(await activationOf()).toBe("softmax");
    configure({ problem_type: "single_label_classification" });
    expect(await activationOf()).toBe("softmax");
  });

  it("refuses a regression, whose outputs are not probabilities", async () => {
    configure({ problem_type: "regression" });
    expect(await refusalOf({ label: 0 }, folder)).toMatch(
      /"problem_type": "regression", so its outputs are not probab/,
    );
    const { scorer } = await scoresOf({ label: 0, activation: "sigmoid" }, ["a"], folder);
    expect(scorer.activation).toBe("sigmoid");
  });

  it("requires a name for every label", async () => {
    configure({ id2label: { 0: "a", 1: "b", 2: "a", 3: "c", 4: "d", 5: "e" } });
    expect(await refusalOf({ label: 0 }, folder)).toMatch(/every label must have a unique name/);
  });
});

const [low, high] = [...published[0]!.rows].sort((one, other) => one.sigmoid[0]! - other.sigmoid[0]!);
scorerContract("ClassifierScorer", {
  create: () => ClassifierScorer.load({ model: published[0]!.folder, label: 0, activation: "sigmoid" }),
  harmful: high!.text,
  harmless: low!.text,
});
