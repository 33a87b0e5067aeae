import { describe, expect, it } from "vitest";
import { Scorer, type ScoreOutcome } from "@astra-rl/method";
import { breaking } from "../../base/test/support/breaking.js";
import { BatchedScorer } from "../src/index.js";

class Counting extends Scorer {
  override readonly name = "counting";
  readonly calls: string[][] = [];
  disposed = false;
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    this.calls.push([...texts]);
    return Promise.resolve(
      texts.map((text) =>
        text === "fails"
          ? { failure: { stage: "scorer", message: "", attempts: 1 } }
          : { score: text.length / 100 },
      ),
    );
  }
  override dispose(): void {
    this.disposed = true;
  }
}

describe("BatchedScorer", () => {
  it("asks for distinct texts in limited batches, similar lengths together", async () => {
    const inner = new Counting();
    const outcomes = await new BatchedScorer(inner, { batchSize: 2 }).score([
      "ccc",
      "a",
      "bb",
      "a",
      "dddd",
      "ccc",
    ]);
    expect(inner.calls).toEqual([
      ["a", "bb"],
      ["ccc", "dddd"],
    ]);
    expect(outcomes.map((outcome) => outcome.score)).toEqual([0.03, 0.01, 0.02, 0.01, 0.04, 0.03]);
  });

  it("caches scores up to its limit, never failures", async () => {
    const inner = new Counting();
    const scorer = new BatchedScorer(inner, { cacheSize: 2 });
    await scorer.score(["a", "fails"]);
    await scorer.score(["a", "fails", "bb"]);
    await scorer.score(["ccc"]);
    await scorer.score(["a", "bb"]);
    expect(inner.calls).toEqual([["a", "fails"], ["bb", "fails"], ["ccc"], ["a"]]);
    scorer.dispose();
    expect(inner.disposed).toBe(true);
  });

  it("refuses batches of nothing", () => {
    expect(() => new BatchedScorer(new Counting(), { batchSize: 0 })).toThrow(
      breaking("out-of-range", "batchSize"),
    );
    expect(() => new BatchedScorer(new Counting(), { cacheSize: -1 })).toThrow(
      breaking("out-of-range", "cacheSize"),
    );
  });
});
