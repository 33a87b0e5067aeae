import { describe, expect, it, vi } from "vitest";
import { ContractError } from "../../src/tree/index.js";
import { Scorer, type ScoreOutcome } from "../../src/scorer/index.js";

class Scripted extends Scorer {
  override readonly name = "scripted";
  readonly calls: string[][] = [];
  constructor(readonly answer: (text: string, call: number) => ScoreOutcome | Error) {
    super();
  }
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    this.calls.push([...texts]);
    const answers = texts.map((text) => this.answer(text, this.calls.length));
    const error = answers.find((answer) => answer instanceof Error);
    if (error !== undefined) return Promise.reject(error as Error);
    return Promise.resolve(answers as ScoreOutcome[]);
  }
}

const failure = { failure: { stage: "scorer", message: "busy", attempts: 1 } } as const;

describe("Scorer.scoreAndValidate", () => {
  it("scores each distinct text once", async () => {
    const scorer = new Scripted((text) => ({ score: text.length / 10 }));
    const outcomes = await scorer.scoreAndValidate(["aa", "b", "aa", "b", "aa"]);
    expect(outcomes.map((outcome) => outcome.score)).toEqual([0.2, 0.1, 0.2, 0.1, 0.2]);
    expect(scorer.calls).toEqual([["aa", "b"]]);
  });

  it("retries only the texts that failed", async () => {
    const scorer = new Scripted((text, call) => (text === "b" && call < 3 ? failure : { score: 1 }));
    const outcomes = await scorer.scoreAndValidate(["a", "b", "c"]);
    expect(outcomes.every((outcome) => outcome.score === 1)).toBe(true);
    expect(scorer.calls).toEqual([["a", "b", "c"], ["b"], ["b"]]);
  });

  it("records a call that keeps failing as data, with attempts counted and delayed", async () => {
    const scorer = new Scripted(() => new Error("no route to host"));
    const waits: number[] = [];
    const sleep = (milliseconds: number) => Promise.resolve(void waits.push(milliseconds));
    const outcomes = await scorer.scoreAndValidate(["a", "a"], { attempts: 4, delay: 10, sleep });
    const expected = { failure: { stage: "scorer", message: "no route to host", attempts: 4 } };
    expect(outcomes).toEqual([expected, expected]);
    expect(waits).toEqual([10, 20, 40]);
  });

  it.each([
    ["above 1", () => ({ score: 1.5 }), /from 0 to 1, got 1.5/u],
    ["NaN", () => ({ score: NaN }), /got NaN/u],
    ["a bad label", () => ({ score: 0, labels: { threat: -1 } }), /label "threat".*got -1/u],
  ])("refuses a score that is %s", async (_, answer, message) => {
    await expect(new Scripted(answer).scoreAndValidate(["a"])).rejects.toThrow(message);
    await expect(new Scripted(answer).scoreAndValidate(["a"])).rejects.toBeInstanceOf(ContractError);
  });

  it("refuses a wrong number of outcomes", async () => {
    class Short extends Scripted {
      override async score(texts: readonly string[]): Promise<ScoreOutcome[]> {
        return (await super.score(texts)).slice(1);
      }
    }
    await expect(new Short(() => ({ score: 0 })).scoreAndValidate(["a", "b"])).rejects.toThrow(
      /each of 2 inputs, got 1/u,
    );
  });
});

describe("a deadline", () => {
  class Late extends Scorer {
    readonly name = "late";
    override deadline: number | null = 20;
    calls = 0;
    override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
      this.calls += 1;
      return texts.includes("never")
        ? new Promise(() => {})
        : Promise.resolve(texts.map(() => ({ score: 0.5 })));
    }
  }

  it("fails a call that is not answered, without retries", async () => {
    const scorer = new Late();
    const [outcome] = await scorer.scoreAndValidate(["never"]);
    expect(outcome!.failure).toEqual({
      stage: "scorer",
      message: "late.score: gave no answer within 0.02 s",
      attempts: 1,
    });
    expect(scorer.calls).toBe(1);
    expect(await scorer.scoreAndValidate(["soon"])).toEqual([{ score: 0.5 }]);
  });

  it("warns after 15 s that a call has not answered, long before it fails", async () => {
    vi.useFakeTimers();
    try {
      const scorer = new Late();
      scorer.deadline = 600_000;
      const lines: string[] = [];
      scorer.onSilence = (line) => lines.push(line);
      const outcome = scorer.scoreAndValidate(["never"]);
      await vi.advanceTimersByTimeAsync(14_000);
      expect(lines).toEqual([]);
      await vi.advanceTimersByTimeAsync(2000);
      expect(lines).toEqual(["late.score: no answer for 15 s; the call fails after 600 s (deadline)"]);
      await vi.advanceTimersByTimeAsync(600_000);
      expect((await outcome)[0]!.failure!.message).toContain("no answer within 600 s");
      await scorer.scoreAndValidate(["soon"]);
      await vi.advanceTimersByTimeAsync(60_000);
      expect(lines.length).toBe(1);
    } finally {
      vi.useRealTimers();
    }
  });
});
