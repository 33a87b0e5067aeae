import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { compareAll, compareEvaluations, differencesInSetup, type Evaluated } from "../src/index.js";

const files = { "model.safetensors": "a".repeat(64) };
const measured = {
  tester: { model: "t", files },
  target: { model: "v", files },
  scorer: {
    type: "detoxify",
    sha256: { "scorer.file": "c".repeat(64) },
    file: "/a/x.json",
    models: [{ model: "/a/judge", files }],
  },
  prompts: { source: "p", split: "test", sha256: "b".repeat(64), count: 2 },
  generation: { tester: { temperature: 1 }, target: { temperature: 1, topK: 0 } },
  sampler: { type: "ast", depth: 3, width: 2 },
  reward: { preset: "paper" },
  dtype: "float32",
  seed: 1,
  astra_rl: "0.1.0",
};

const detail = (context: string, harmful: boolean, reward: number) => ({
  per_turn: [
    {
      turn: 1,
      context,
      probe: "p",
      response: "r",
      reward,
      probe_harm: 0,
      response_harm: harmful ? 1 : 0,
      probe_nll: 2,
      probe_tokens: 3,
      error: null,
    },
  ],
  overall: {
    num_turns: 1,
    num_errors: 0,
    mean_reward: reward,
    first_harmful_response_turn: harmful ? 1 : null,
    harmless_probe_success: harmful,
  },
});

const evaluated = (
  harmful: boolean[],
  change: Record<string, unknown> = {},
  contexts = ["a", "b", "c", "d"],
): Evaluated =>
  ({
    summary: { harm_threshold: 0.5 },
    details: harmful.map((each, at) => detail(contexts[at]!, each, each ? 1 : 0)),
    measured: { ...measured, ...change },
  }) as unknown as Evaluated;

const base = evaluated([true, false, true, false]);

describe("evaluations are not comparable", () => {
  it.each([
    ["different scorers", { scorer: { ...measured.scorer, type: "keyword" } }],
    ["different scorers", { scorer: { ...measured.scorer, sha256: { "scorer.file": "d".repeat(64) } } }],
    [
      "different scorers",
      { scorer: { ...measured.scorer, models: [{ model: "/a/judge", files: { x: "e".repeat(64) } }] } },
    ],
    ["different numbers of turns", { sampler: { ...measured.sampler, depth: 4 } }],
    ["different samplers", { sampler: { ...measured.sampler, width: 3 } }],
    [
      "different generation settings of the tester",
      { generation: { ...measured.generation, tester: { temperature: 0.7 } } },
    ],
    [
      "different generation settings of the target",
      { generation: { ...measured.generation, target: { temperature: 1, topK: 5 } } },
    ],
    ["different conversation formats", { formats: { target: "chat" } }],
    ["versions 0.1.0 and 0.2.0 of astra-rl", { astra_rl: "0.2.0" }],
  ])("by %s", (phrase, change) => {
    const other = evaluated([true, true, true, false], change);
    expect(differencesInSetup(base, other)).toEqual([phrase]);
    expect(() =>
      compareAll([
        { label: "A", evaluation: base },
        { label: "B", evaluation: other },
      ]),
    ).toThrow(breaking("not-comparable"));
    const [forced] = compareAll(
      [
        { label: "A", evaluation: base },
        { label: "B", evaluation: other },
      ],
      { force: true },
    );
    expect([forced!.unlike, forced!.record!.n_pairs]).toEqual([[phrase], 4]);
  });

  it("with different prompts or numbers of prompts, though shared prompts are paired", () => {
    for (const [other, pairs] of [
      [evaluated([true, false, true, false], {}, ["a", "b", "c", "x"]), 3],
      [evaluated([true]), 1],
      [evaluated([true, true, true, true, true, true], {}, ["d", "c", "a", "a", "x", "b"]), 4],
    ] as const) {
      const [forced] = compareAll(
        [
          { label: "A", evaluation: base },
          { label: "B", evaluation: other },
        ],
        { force: true },
      );
      expect([forced!.unlike.length, forced!.isPartial, forced!.record!.n_pairs]).toEqual([1, true, pairs]);
    }
  });

  it("with no prompt in common, so that nothing can be paired", () => {
    for (const other of [evaluated([true, false], {}, ["x", "y"])]) {
      const [forced] = compareAll(
        [
          { label: "A", evaluation: base },
          { label: "B", evaluation: other },
        ],
        { force: true },
      );
      expect(forced!.unlike.length).toBe(1);
      expect([forced!.record, forced!.adjusted]).toEqual([
        null,
        { success: null, harmless: null, reward: null },
      ]);
    }
  });

  it("despite different testers, targets, file locations or request settings of a scorer", () => {
    const other = evaluated([true, true, true, false], {
      tester: { model: "other", files: {} },
      target: { model: "other", files: { x: "f".repeat(64) } },
      seed: 9,
      scorer: {
        ...measured.scorer,
        file: "/b/y.json",
        cache: { file: "x" },
        models: [{ model: "/b/judge", files }],
      },
    });
    expect(differencesInSetup(base, other)).toEqual([]);
  });

  it("if only one of them records what it measured", () => {
    expect(differencesInSetup(base, { ...base, measured: null })).toEqual([
      "no record of what one of them measured",
    ]);
    expect(differencesInSetup({ ...base, measured: null }, { ...base, measured: null })).toEqual([]);
  });
});

it("rewards of different definitions, and likelihoods by different models, are not compared", () => {
  const same = compareEvaluations(base, evaluated([true, true, true, false]));
  expect([same.reward_difference, same.probe_nll_difference]).toEqual([0.25, 0]);
  const paid = compareEvaluations(
    base,
    evaluated([true, true, true, false], { reward: { preset: "other" } }),
  );
  expect([paid.reward_difference, paid.reward_p_value, paid.probe_nll_difference]).toEqual([null, null, 0]);
  const likelihood = { model: "l", files: { x: "f".repeat(64) } };
  const told = compareEvaluations(base, evaluated([true, true, true, false], { likelihood }));
  expect([told.reward_difference, told.probe_nll_difference]).toEqual([0.25, null]);
  expect(told.difference).toBe(0.25);
});

it("p-values of several comparisons are adjusted", () => {
  const many = (harmful: number) =>
    evaluated(
      Array.from({ length: 40 }, (_, at) => at < harmful),
      {},
      Array.from({ length: 40 }, (_, at) => `prompt ${at}`),
    );
  const [one, two] = compareAll([
    { label: "A", evaluation: many(2) },
    { label: "B", evaluation: many(9) },
    { label: "C", evaluation: many(20) },
  ]) as [ReturnType<typeof compareAll>[0], ReturnType<typeof compareAll>[0]];
  expect(one.adjusted.success).toBeCloseTo(Math.max(one.record!.p_value!, 2 * two.record!.p_value!), 12);
  expect(two.adjusted.success).toBeCloseTo(2 * two.record!.p_value!, 12);
});
