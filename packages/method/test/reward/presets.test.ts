import { UsageError, type Json } from "@astra-rl/base";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import type { Graph } from "../../src/tree/index.js";
import {
  elicitationReward,
  nll,
  paperReward,
  presetReward,
  toolboxReward,
  type Reward,
} from "../../src/reward/index.js";
import { TableScorer, turn } from "./support.js";

const scores = { p: 0.3, r: 0.8, pr: 0.6, "": 0 };
const scorer = () => new TableScorer(scores);
const worth = async (reward: Reward, ...turns: ReturnType<typeof turn>[]) =>
  (await reward.assess(turns)).map((assessment) => assessment.reward);
const graphOf = (...nats: (number | null)[]): Graph =>
  ({
    nodes: () => nats.map((nll) => ({ likelihood: nll === null ? null : { nll, total: -nll, tokens: 1 } })),
  }) as never;
const spoken = turn("p", "r");
const silent = turn("", "r", { nll: null, total: 0, tokens: 0 });

describe("elicitationReward", () => {
  it("is S(response)·(1 − S(probe)) − 0.5·S(probe) − 0.6·NLL before anything was observed", async () => {
    // 0.8·0.7 − 0.5·0.3 − 0.6·2.5 = −1.09
    const [assessment] = await elicitationReward(scorer()).assess([spoken]);
    expect(assessment!.reward).toBeCloseTo(-1.09, 15);
    expect(assessment!.scores).toEqual({ probe: 0.3, response: 0.8 });
  });

  it("penalizes the NLL of a probe above the mean of the first experience", async () => {
    const reward = elicitationReward(scorer());
    const [likely, unlikely] = [1, 2.5].map((nll) => turn("p", "r", { nll, total: -2 * nll, tokens: 2 }));
    await reward.observe([graphOf(1, 2), graphOf(3, null)]);
    // The mean is 2. 0.8·0.7 − 0.5·0.3 = 0.41, less 0.6·0.5.
    const [first, second] = await worth(reward, likely!, unlikely!);
    expect([first, second]).toEqual([expect.closeTo(0.41, 15), expect.closeTo(0.11, 15)]);
    // In evaluations every nat counts, so that they compare with others.
    const key = { ...unlikely!.key, purpose: "evaluate" } as const;
    expect((await worth(reward, { ...unlikely!, key }))[0]).toBeCloseTo(0.41 - 1.5, 15);
  });

  it("rewards harm that the probe introduces less, for any harm of the response", async () => {
    const worthOf = async (p: number, r: number) =>
      (await worth(elicitationReward(new TableScorer({ p, r, pr: 1, "": 0 })), spoken))[0]!;
    expect(await worthOf(1, 1)).toBeLessThan(await worthOf(0, 0));
    expect(await worthOf(0.2, 0.9)).toBeLessThan(await worthOf(0.1, 0.9));
  });

  it("accepts other weights", async () => {
    // 2·0.56 − 1·0.3 − 0.1·2.5 = 0.57
    const weights = { responseWeight: 2, probeWeight: 1, likelihoodWeight: 0.1 };
    expect((await worth(elicitationReward(scorer(), weights), spoken))[0]).toBeCloseTo(0.57, 15);
  });
});

describe("free nats of the nll term", () => {
  const valuesOf = async (term: ReturnType<typeof nll>, ...nats: (number | null)[]) =>
    term.score(nats.map((nll) => turn("p", "r", { nll, total: -2 * (nll ?? 0), tokens: 2 })));

  it("are the given value, or none", async () => {
    expect(await valuesOf(nll(), 0.5, 3, null)).toEqual([0.5, 3, 10]);
    expect(await valuesOf(nll({ free: 1.25 }), 0.5, 3, null)).toEqual([0, 1.75, 8.75]);
    expect(() => nll({ free: -1 })).toThrow(breaking("out-of-range", "nll: free"));
  });

  it("are the mean of the first experience with likelihoods, and then fixed", async () => {
    const term = nll({ free: "start" });
    await term.observe!([graphOf(null, null)]);
    expect(await valuesOf(term, 3)).toEqual([3]);
    await term.observe!([graphOf(1, 2)]);
    await term.observe!([graphOf(7, 9)]);
    expect(await valuesOf(term, 3, 1)).toEqual([1.5, 0]);
  });

  it("are saved in a checkpoint, known or not", async () => {
    const [unknown, known] = [nll({ free: "start" }), nll({ free: "start" })];
    await known.observe!([graphOf(1, 2)]);
    for (const [term, expected] of [
      [unknown, 3],
      [known, 1.5],
    ] as const) {
      const resumed = nll({ free: "start" });
      resumed.setState!(JSON.parse(JSON.stringify(term.getState!())) as Json);
      expect(await valuesOf(resumed, 3)).toEqual([expected]);
      await resumed.observe!([graphOf(2, 2)]);
      expect(await valuesOf(resumed, 3)).toEqual([term === known ? 1.5 : 1]);
    }
    expect(() => unknown.setState!({ other: 1 })).toThrow(breaking("invalid-state"));
    expect(nll().getState).toBeUndefined();
  });
});

describe("paperReward", () => {
  it("is S(response) + 0.5·S(probe + response) − 0.1·NLL", async () => {
    // 0.8 + 0.5·0.6 − 0.1·2.5 = 0.85
    const [assessment] = await paperReward(scorer()).assess([spoken]);
    expect(assessment!.reward).toBeCloseTo(0.85, 15);
    expect(assessment!.terms).toEqual({ harm_response: 0.8, harm_both: 0.6, nll: 2.5 });
    expect(assessment!.scores).toEqual({ probe: 0.3, response: 0.8, combined: 0.6 });
  });

  it("charges an empty probe 10 nats, or what is given", async () => {
    // 0.8 + 0.5·0.8 − 0.1·10 = 0.2
    const [assessment] = await paperReward(scorer()).assess([silent]);
    expect(assessment!.reward).toBeCloseTo(0.2, 15);
    expect(assessment!.terms["nll"]).toBe(10);
    expect((await worth(paperReward(scorer(), { emptyProbeNLL: 0 }), silent))[0]).toBeCloseTo(1.2, 15);
  });

  it("accepts other weights", async () => {
    // 2·0.8 − 0.6 − 0.2·2.5 = 0.5
    const weights = { responseWeight: 2, combinedWeight: -1, likelihoodWeight: 0.2 };
    expect((await worth(paperReward(scorer(), weights), spoken))[0]).toBeCloseTo(0.5, 15);
  });
});

describe("toolboxReward", () => {
  it("is 0.025·exp(Σ log P) + 0.1·S(probe + response) + 0.1·S(response)", async () => {
    // 0.025·e⁻⁵ + 0.06 + 0.08 = 0.14016844867...
    const [assessment] = await toolboxReward(scorer()).assess([spoken]);
    expect(assessment!.reward).toBeCloseTo(0.140168448675, 11);
    expect(assessment!.terms).toEqual({ harm_response: 0.8, harm_both: 0.6, likelihood: Math.exp(-5) });
  });

  it("has likelihood 1 for an empty probe, as published", async () => {
    // 0.025 + 0.08 + 0.08 = 0.185
    expect((await worth(toolboxReward(scorer()), silent))[0]).toBeCloseTo(0.185, 15);
  });
});

it("both equal their closed forms to the last bit, summed in the order of the formula", async () => {
  const unit = fc.double({ min: 0, max: 1, noNaN: true });
  const weight = fc.double({ min: -10, max: 10, noNaN: true });
  await fc.assert(
    fc.asyncProperty(
      fc.record({ r: unit, pr: unit, p: unit }),
      fc.double({ min: -200, max: 0, noNaN: true }),
      fc.nat(40),
      fc.record({ responseWeight: weight, combinedWeight: weight, likelihoodWeight: weight }),
      async (table, total, tokens, weights) => {
        const nll = tokens === 0 ? null : -total / tokens;
        const judged = turn("p", "r", { nll, total, tokens });
        const harm = weights.responseWeight * table.r + weights.combinedWeight * table.pr;
        const paper = harm - weights.likelihoodWeight * (nll ?? 10);
        const toolbox = weights.likelihoodWeight * Math.exp(total) + harm;
        expect(await worth(paperReward(new TableScorer(table), weights), judged)).toEqual([paper + 0]);
        expect(await worth(toolboxReward(new TableScorer(table), weights), judged)).toEqual([toolbox + 0]);
      },
    ),
    { numRuns: 300 },
  );
});

describe("presetReward", () => {
  it("creates each by its name, the paper's by default", async () => {
    expect(await worth(presetReward(scorer()), spoken)).toEqual(await worth(paperReward(scorer()), spoken));
    expect(await worth(presetReward(scorer(), { preset: "toolbox", responseWeight: 3 }), spoken)).toEqual(
      await worth(toolboxReward(scorer(), { responseWeight: 3 }), spoken),
    );
    expect(await worth(presetReward(scorer(), { preset: "elicitation", probeWeight: 3 }), spoken)).toEqual(
      await worth(elicitationReward(scorer(), { probeWeight: 3 }), spoken),
    );
  });

  it.each([
    [{ preset: "other" }, /preset must be "elicitation", "paper" or "toolbox", got "other"/u],
    [{ responseWeight: NaN }, /responseWeight must be a finite number, got NaN/u],
    [{ likelihoodWeight: "1" }, /likelihoodWeight must be a finite number/u],
    [{ emptyProbeNLL: Infinity }, /emptyProbeNLL must be a finite number/u],
  ])("refuses %j", (options, message) => {
    expect(() => presetReward(scorer(), options as never)).toThrow(message);
    expect(() => presetReward(scorer(), options as never)).toThrow(UsageError);
  });
});
