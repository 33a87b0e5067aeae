import { UsageError } from "@astra-rl/base";
import { describe, expect, test } from "vitest";
import { ContractError, Scorer, type Exchange, type ScoreOutcome } from "@astra-rl/method";
import {
  calibrate,
  CalibratedScorer,
  ClipScorer,
  KeywordScorer,
  MaxScorer,
  MeanScorer,
  ThresholdScorer,
  WeightedScorer,
} from "../src/index.js";

/** Answers from a table; "down" is a call that fails. */
class Table extends Scorer {
  override readonly labelNames: readonly string[];
  readonly calls: string[][] = [];
  disposed = 0;
  constructor(
    readonly name: string,
    readonly table: Readonly<Record<string, number | null>>,
    readonly label?: string,
  ) {
    super();
    this.labelNames = label === undefined ? [] : [label];
  }
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    this.calls.push([...texts]);
    if (texts.includes("down")) return Promise.reject(new Error("no route"));
    return Promise.resolve(
      texts.map((text): ScoreOutcome => {
        const score = this.table[text]!;
        if (score === null) return { failure: { stage: "scorer", message: "refused", attempts: 1 } };
        return this.label === undefined ? { score } : { score, labels: { [this.label]: score / 2 } };
      }),
    );
  }
  override dispose(): void {
    this.disposed += 1;
  }
}

/** Scores an exchange by its prompt as well: 1 where the response repeats it. */
class Echo extends Scorer {
  override readonly name = "echo";
  readonly asked: Exchange[] = [];
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(texts.map(() => ({ score: 0.5 })));
  }
  override scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    this.asked.push(...exchanges);
    return Promise.resolve(exchanges.map(({ prompt, response }) => ({ score: prompt === response ? 1 : 0 })));
  }
}

describe("several scorers", () => {
  const a = () => new Table("a", { x: 0.2, y: 1, z: null }, "rude");
  const b = () => new Table("b", { x: 0.6, y: 0, z: 1 });

  test.each([
    // (3·0.2 + 1·0.6)/4 and (3·1 + 0)/4
    [
      "weighted",
      () =>
        new WeightedScorer([
          { scorer: a(), weight: 3 },
          { scorer: b(), weight: 1 },
        ]),
      [0.3, 0.75],
    ],
    ["mean", () => new MeanScorer([a(), b()]), [0.4, 0.5]],
    ["max", () => new MaxScorer([a(), b()]), [0.6, 1]],
  ] as const)("%s: one score, each part's own and its labels behind it", async (_, make, [x, y]) => {
    const scorer = make();
    expect(scorer.labelNames).toEqual(["a", "a/rude", "b"]);
    const outcomes = await scorer.scoreAndValidate(["x", "y"]);
    expect(outcomes[0]!.score).toBeCloseTo(x, 12);
    expect(outcomes[1]!.score).toBeCloseTo(y, 12);
    expect(outcomes[0]!.labels).toEqual({ a: 0.2, "a/rude": 0.1, b: 0.6 });
  });

  test("an item that one part cannot score has no score, and names that part", async () => {
    const parts = [b(), a()];
    const [x, z] = await new MaxScorer(parts).scoreAndValidate(["x", "z"]);
    expect(x!.score).toBe(0.6);
    expect(z).toEqual({ failure: { stage: "scorer", message: "a: refused", attempts: 3 } });
    // Only failed items were retried.
    expect(parts[1]!.calls).toEqual([["x", "z"], ["z"], ["z"]]);
    const [down] = await new MeanScorer([b(), a()]).scoreAndValidate(["down"], { attempts: 1 });
    expect(down!.failure!.message).toBe("b: no route");
  });

  test("parts with equal names get distinct labels, and all are freed", async () => {
    const parts = [a(), a(), a()];
    const scorer = new MeanScorer(parts);
    expect(scorer.labelNames).toEqual(["a", "a/rude", "a-2", "a-2/rude", "a-3", "a-3/rude"]);
    expect((await scorer.score(["x"]))[0]!.labels).toMatchObject({ "a-3/rude": 0.1 });
    scorer.dispose();
    expect(parts.map(({ disposed }) => disposed)).toEqual([1, 1, 1]);
  });

  test("weights that sum to 1 only approximately keep scores in range", async () => {
    const parts = Array.from({ length: 10 }, (_, index) => ({
      scorer: new Table(`t${index}`, { y: 1 }),
      weight: 0.1,
    }));
    expect((await new WeightedScorer(parts).scoreAndValidate(["y"]))[0]!.score).toBeCloseTo(1, 12);
  });

  test.each([
    [() => new MaxScorer([]), /max: needs at least one scorer, got none/u],
    [
      () => new WeightedScorer([{ scorer: a(), weight: 0 }]),
      /weighted: every weight must be above 0 and finite, got 0/u,
    ],
    [() => new WeightedScorer([{ scorer: a(), weight: NaN }]), /got NaN/u],
    [() => new ThresholdScorer(a(), 0), /greater than 0 and at most 1/u],
  ])("%#: is refused", (make, message) => {
    expect(make).toThrow(UsageError);
    expect(make).toThrow(message);
  });

  test("a role-aware part gets exchanges, and the others get texts, each once", async () => {
    const [echo, texts] = [new Echo(), new Table("a", { x: 0.2 })];
    const scorer = new MaxScorer([echo, texts]);
    expect(scorer.keepsRoles).toBe(true);
    expect(new MaxScorer([texts]).keepsRoles).toBe(false);
    const outcomes = await scorer.scoreAndValidate([
      { prompt: "x", response: "x" },
      { prompt: "y", response: "x" },
      { prompt: "x", response: "x" },
    ]);
    expect(outcomes.map(({ score }) => score)).toEqual([1, 0.2, 1]);
    expect(outcomes[2]).toBe(outcomes[0]);
    expect(echo.asked).toHaveLength(2);
    expect(texts.calls).toEqual([["x"]]);
  });
});

describe("another scale", () => {
  const logits = () => new Table("logits", { low: -4, zero: 0, high: 3, half: 0.5 }, "loud");

  test("is refused with a remedy, also inside other scorers", async () => {
    for (const scorer of [logits(), new MaxScorer([logits()]), new ThresholdScorer(logits(), 0.5)]) {
      const call = scorer.scoreAndValidate(["high"]);
      await expect(call).rejects.toBeInstanceOf(ContractError);
      await expect(scorer.scoreAndValidate(["high"])).rejects.toThrow(
        'logits.score: every score must be a number from 0 to 1, got 3 for "high"; map another scale to it with ' +
          "{type: clip, scorer: …}, or {type: calibrated, scorer: …, method: …}",
      );
    }
  });

  test("clip: limits scores and labels to between 0 and 1", async () => {
    const outcomes = await new ClipScorer(logits()).scoreAndValidate(["low", "half", "high"]);
    expect(outcomes).toEqual([
      { score: 0, labels: { loud: 0 } },
      { score: 0.5, labels: { loud: 0.25 } },
      { score: 1, labels: { loud: 1 } },
    ]);
    const broken = new ClipScorer(new Table("t", { x: NaN }));
    await expect(broken.scoreAndValidate(["x"])).rejects.toThrow(
      /must be a finite number, got NaN for "x"$/u,
    );
  });

  test("threshold: 1 at or above the threshold, labels unchanged", async () => {
    const scorer = new ThresholdScorer(new Table("t", { a: 0.49, b: 0.5, c: 1 }, "rude"), 0.5);
    const outcomes = await scorer.scoreAndValidate(["a", "b", "c"]);
    expect(outcomes.map(({ score }) => score)).toEqual([0, 1, 1]);
    expect(outcomes[1]!.labels).toEqual({ rude: 0.25 });
  });

  test("platt: sigmoid(slope · score + intercept)", () => {
    const platt = { method: "platt", slope: 2, intercept: -1 } as const;
    expect(calibrate(0.5, platt)).toBe(0.5);
    // 1 / (1 + e^−3) and 1 / (1 + e^5)
    expect(calibrate(2, platt)).toBeCloseTo(0.9525741268224334, 15);
    expect(calibrate(-2, platt)).toBeCloseTo(0.0066928509242848554, 15);
    expect([calibrate(1e9, platt), calibrate(-1e9, platt)]).toEqual([1, 0]);
  });

  test("isotonic: interpolates between the points, constant outside", () => {
    const isotonic = {
      method: "isotonic",
      points: [
        [-1, 0.1],
        [1, 0.5],
        [2, 0.5],
        [4, 0.9],
      ],
    } as const;
    expect(
      [-9, -1, 0, 1, 1.5, 3, 4, 99].map((score) => Number(calibrate(score, isotonic).toFixed(12))),
    ).toEqual([0.1, 0.1, 0.3, 0.5, 0.5, 0.7, 0.9, 0.9]);
  });

  test("min-max: a line, 0 below and 1 above", () => {
    const range = { method: "min-max", minimum: 10, maximum: 20 } as const;
    expect([5, 10, 12.5, 20, 30].map((score) => calibrate(score, range))).toEqual([0, 0, 0.25, 1, 1]);
  });

  test("calibrated scorers are in range, labels on the same scale", async () => {
    const scorer = new CalibratedScorer(logits(), { method: "min-max", minimum: -4, maximum: 4 });
    expect(await scorer.scoreAndValidate(["low", "zero"])).toEqual([
      { score: 0, labels: { loud: 0.25 } },
      { score: 0.5, labels: { loud: 0.5 } },
    ]);
    expect(scorer.labelNames).toEqual(logits().labelNames);
  });

  test.each([
    [{ method: "min-max", minimum: 1, maximum: 1 }, /minimum must be less than maximum, got 1 and 1/u],
    [{ method: "isotonic", points: [] }, /points must not be empty/u],
    [{ method: "isotonic", points: [[0, 2]] }, /probabilities from 0 to 1, got 2 at \[0\]/u],
    [
      {
        method: "isotonic",
        points: [
          [0, 0.5],
          [1, 0.4],
        ],
      },
      /never fall in probability/u,
    ],
  ] as const)("%j is refused", (calibration, message) => {
    expect(() => new CalibratedScorer(new KeywordScorer([{ term: "a" }]), calibration)).toThrow(message);
  });
});
