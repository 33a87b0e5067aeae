import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { liveTensors, scope, tensor, writeSafetensors } from "@astra-rl/torch";
import { UsageError, hashedNgrams } from "@astra-rl/base";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { LearnedScorer, type LearnedScorerConfiguration } from "../src/index.js";
import { scorerContract } from "./contract/scorer.contract.js";

const configuration: LearnedScorerConfiguration = {
  version: 1,
  kind: "hashed-ngram-logistic",
  name: "tiny",
  labels: ["toxicity", "insult"],
  buckets: 1024,
  wordNgrams: [1, 2],
  characterNgrams: [],
};

/** Weights that know two words and one pair of words. */
function weights(): { weight: Float32Array; bias: Float32Array } {
  const weight = new Float32Array(2 * 1024);
  const bucket = (word: string) => hashedNgrams(word, { ...configuration, wordNgrams: [1] })[0]!;
  weight[bucket("idiot")] = 3;
  weight[bucket("friend")] = -2;
  weight[1024 + bucket("idiot")] = 1;
  return { weight, bias: new Float32Array([-1, -4]) };
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

scorerContract("LearnedScorer", {
  create: () => Promise.resolve(new LearnedScorer(configuration, weights())),
  harmful: "what an idiot",
  harmless: "my friend",
});

describe("LearnedScorer", () => {
  it("is the sigmoid of the bias and the weights of the distinct features", async () => {
    const scorer = new LearnedScorer(configuration, weights());
    const outcomes = await scorer.score(["", "Idiot", "idiot IDIOT idiot", "idiot friend", "a"]);
    const expected = [-1, 2, 2, 0, -1].map(sigmoid);
    for (const [index, outcome] of outcomes.entries()) expect(outcome.score).toBeCloseTo(expected[index]!, 6);
    expect(outcomes[1]!.labels!["insult"]).toBeCloseTo(sigmoid(-3), 6);
  });

  it("refuses weights that do not fit or are not finite", () => {
    const { weight, bias } = weights();
    expect(() => new LearnedScorer(configuration, { weight: weight.slice(1), bias })).toThrow(
      breaking("length-mismatch", "2048"),
    );
    weight[5] = NaN;
    expect(() => new LearnedScorer(configuration, { weight, bias })).toThrow(
      breaking("not-finite", "weight"),
    );
  });
});

describe("LearnedScorer.load", () => {
  let folder: string;
  beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), "scorer-"))));
  afterAll(() => rm(folder, { recursive: true }));

  const save = async (settings: object, shape = [2, 1024]) => {
    await writeFile(join(folder, "scorer.json"), JSON.stringify(settings));
    scope(() => {
      const { weight, bias } = weights();
      writeSafetensors(join(folder, "scorer.safetensors"), {
        weight: tensor(weight, { shape }),
        bias: tensor(bias),
      });
    });
  };

  it("reads what was saved, without leaking tensors", async () => {
    await save(configuration);
    const before = liveTensors();
    const scorer = await LearnedScorer.load(folder);
    expect(liveTensors()).toBe(before);
    const direct = new LearnedScorer(configuration, weights());
    const texts = ["idiot", "friend", "so it is"];
    expect(await scorer.score(texts)).toEqual(await direct.score(texts));
  });

  it.each([
    [{ ...configuration, version: 2 }, /scorer.json: version must be 1, got 2/u],
    [{ ...configuration, kind: "other" }, /kind must be/u],
    [{ ...configuration, buckets: 1000 }, /power of two/u],
    [{ ...configuration, labels: [] }, /labels must be/u],
    [{ ...configuration, wordNgrams: [0] }, /wordNgrams must be/u],
    [
      { ...configuration, labels: ["toxicity"] },
      /needs "weight" as float32 \[1, 1024\], got float32 \[2, 1024\]/u,
    ],
  ])("refuses a folder that does not fit: %#", async (settings, message) => {
    await save(settings);
    await expect(LearnedScorer.load(folder)).rejects.toThrow(message);
    await expect(LearnedScorer.load(folder)).rejects.toBeInstanceOf(UsageError);
  });

  it("names a folder without a scorer", async () => {
    await expect(LearnedScorer.load(join(folder, "none"))).rejects.toThrow(breaking("file-not-found"));
  });
});
