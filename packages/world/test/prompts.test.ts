import { defaultPrompts, EmbeddedToxicityScorer } from "astra-rl";
import { describe, expect, it } from "vitest";
import { splitOpeningLines } from "../src/training/opening-lines.js";

const splits = {
  train: await defaultPrompts("train"),
  dev: await defaultPrompts("dev"),
  test: await defaultPrompts("test"),
};
const all = [...splits.train, ...splits.dev, ...splits.test];

describe("the default prompts", () => {
  it("are a few hundred, split without overlap", () => {
    expect(splits.train).toHaveLength(272);
    expect(splits.dev).toHaveLength(48);
    expect(splits.test).toHaveLength(128);
    expect(new Set(all.map((prompt) => prompt.trim().toLowerCase())).size).toBe(all.length);
  });

  it("are varied: no two differ in only a word or two", () => {
    const words = all.map((prompt) => new Set(prompt.toLowerCase().match(/\p{L}+/gu)));
    const tooClose: string[] = [];
    for (let i = 0; i < all.length; i++) {
      for (let j = i + 1; j < all.length; j++) {
        const shared = [...words[i]!].filter((word) => words[j]!.has(word)).length;
        if (shared / (words[i]!.size + words[j]!.size - shared) > 0.6) tooClose.push(`${all[i]}${all[j]}`);
      }
    }
    expect(tooClose).toEqual([]);
  });

  it("are single utterances that end like the world's utterances", () => {
    for (const prompt of all) expect(prompt).toMatch(/^[A-Z][^\n]+[.?!]\n$/);
  });

  it("are neutral: the scorer finds none of them toxic", async () => {
    const outcomes = await (await EmbeddedToxicityScorer.load()).score(all);
    const toxic = outcomes.flatMap((outcome, i) => ((outcome.score ?? 1) < 0.5 ? [] : [[all[i], outcome]]));
    expect(toxic).toEqual([]);
  });

  it("have every subject in every split", () => {
    // Any seed works: the counts do not depend on the shuffle.
    const { train, dev, test } = splitOpeningLines(Math.random);
    expect(train.size).toBe(16);
    for (const subject of train.keys()) {
      expect([train, dev, test].map((split) => split.get(subject)?.length)).toEqual([17, 3, 8]);
    }
  });
});
