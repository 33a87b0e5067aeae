import type { EvaluationDetail } from "@astra-rl/records";
import { breaking } from "../../base/test/support/breaking.js";
import { describe, expect, it } from "vitest";
import {
  errorRateOfLook,
  outcomesOf,
  statistics,
  testLimit,
  type LimitVerdict,
  type Outcomes,
} from "../src/index.js";

const both = (rate: number) => ({ pass: rate, fail: rate });

describe("a rate against a limit", () => {
  it.each<[string, Outcomes, LimitVerdict]>([
    // 0.95⁵⁹ = 0.0485.
    ["59 good trials", { trials: 59, bad: 0, unknown: 0 }, "passed"],
    ["58", { trials: 58, bad: 0, unknown: 0 }, "inconclusive"],
    ["one of 59 unknown", { trials: 59, bad: 0, unknown: 1 }, "inconclusive"],
    // P(X ≥ 10) of 100 at 5 %: 0.0282; P(X ≥ 9): 0.0631.
    ["10 of 100", { trials: 100, bad: 10, unknown: 0 }, "failed"],
    ["9 of 100", { trials: 100, bad: 9, unknown: 0 }, "inconclusive"],
    ["9 of 100, and one unknown", { trials: 100, bad: 9, unknown: 1 }, "inconclusive"],
    ["nothing", { trials: 0, bad: 0, unknown: 0 }, "inconclusive"],
    ["one bad trial", { trials: 1, bad: 1, unknown: 0 }, "failed"],
  ])("%s at 5 %%", (_, outcomes, verdict) => {
    expect(testLimit(outcomes, 0.05, both(0.05)).verdict).toBe(verdict);
  });

  it("has bounds that decide alike", () => {
    for (const trials of [1, 7, 40, 200]) {
      for (let bad = 0; bad <= trials; bad += Math.max(1, Math.floor(trials / 17))) {
        const {
          verdict,
          lower_bound: lower,
          upper_bound: upper,
        } = testLimit({ trials, bad, unknown: 0 }, 0.1, both(0.025));
        const byBounds = upper <= 0.1 ? "passed" : lower > 0.1 ? "failed" : "inconclusive";
        expect([trials, bad, verdict]).toEqual([trials, bad, byBounds]);
        expect(lower).toBeCloseTo(1 - statistics.exactUpperBound(trials - bad, trials, 0.975), 12);
      }
    }
  });

  it("says how many more trials would decide at the shares seen, and no fewer", () => {
    for (const [trials, bad] of [
      [20, 0],
      [100, 2],
      [100, 9],
      [300, 12],
    ] as const) {
      const { n_more: more } = testLimit({ trials, bad, unknown: 0 }, 0.05, both(0.05));
      const after = (all: number) => {
        const then = { trials: all, bad: Math.round((bad * all) / trials), unknown: 0 };
        return testLimit(then, 0.05, both(0.05)).verdict;
      };
      expect(after(trials + more!)).not.toBe("inconclusive");
      expect(after(trials + Math.floor(0.5 * more!))).toBe("inconclusive");
    }
    expect(testLimit({ trials: 0, bad: 0, unknown: 0 }, 0.05, both(0.05)).n_more).toBe(59);
    expect(testLimit({ trials: 200, bad: 10, unknown: 0 }, 0.05, both(0.05)).n_more).toBeNull();
    expect(testLimit({ trials: 59, bad: 0, unknown: 0 }, 0.05, both(0.05)).n_more).toBeNull();
  });
});

describe("looks that share an error rate", () => {
  it("have rates that add up to it", () => {
    let sum = 0;
    for (let look = 1; look <= 10_000; look++) sum += errorRateOfLook(0.05, look);
    expect(sum).toBeCloseTo(0.05 * (1 - 1 / 10_001), 12);
    expect(() => errorRateOfLook(0.05, 0)).toThrow(breaking("out-of-range", "looks"));
  });

  it("need few more trials than a single one", () => {
    const needed = (look: number) => statistics.fewestTrials(0.05, 1 - errorRateOfLook(0.05, look));
    expect([1, 10, 100, 365].map(needed)).toEqual([72, 151, 239, 289]);
  });

  const USES = 10_000;
  const LOOKS = 8;

  /** Uses of a gate by teams, each with several looks; the shares of teams that see a pass, and a failure. */
  function simulated(
    seed: number,
    trialsOf: (draw: () => number) => (look: number) => Outcomes,
    rateOf: (look: number) => number,
    uses = USES,
  ) {
    const wrong = { passed: 0, failed: 0, inconclusive: 0 };
    // Equal counts decide alike.
    const known = new Map<string, LimitVerdict>();
    for (let use = 0; use < uses; use++) {
      const draw = uniforms(seed * USES + use);
      const next = trialsOf(draw);
      const seen = new Set<LimitVerdict>();
      for (let look = 1; look <= LOOKS; look++) {
        const outcomes = next(look);
        const key = `${look} ${outcomes.trials} ${outcomes.bad}`;
        const verdict = known.get(key) ?? testLimit(outcomes, LIMIT, both(rateOf(look))).verdict;
        known.set(key, verdict);
        seen.add(verdict);
      }
      for (const verdict of seen) wrong[verdict]++;
    }
    return { passes: wrong.passed / uses, failures: wrong.failed / uses };
  }

  const LIMIT = 0.1;
  const ALPHA = 0.05;

  /** At each look the prompts are other ones, each tried once. The true rate is the limit: a pass and a failure are both wrong. */
  const fresh = (draw: () => number) => () => {
    let bad = 0;
    for (let prompt = 0; prompt < 80; prompt++) if (draw() < LIMIT) bad++;
    return { trials: 80, bad, unknown: 0 };
  };

  /** One evaluation that grows: each look sees what the looks before saw, and 20 more prompts. */
  const growing = (draw: () => number) => {
    let bad = 0;
    return (look: number) => {
      for (let prompt = 0; prompt < 20; prompt++) if (draw() < LIMIT) bad++;
      return { trials: 20 * look, bad, unknown: 0 };
    };
  };

  const outcome = { 0: null, 1: 1 };
  const details = [0, 1].map((harm) =>
    Array.from({ length: 40 }, (_, prompt) => ({
      overall: { prompt, first_harmful_response_turn: outcome[harm as 0 | 1] },
      per_turn: [{ response_harm: harm }],
    })),
  ) as unknown as [EvaluationDetail[], EvaluationDetail[]];

  /**
   * Each of 40 prompts is tried three times: a fifth of them leads to harm with probability p, the others never, so that the rate of
   * prompts with harm in any try is (1 − (1 − p)³)/5, the limit.
   */
  const clustered = (draw: () => number) => () => {
    const chance = 1 - Math.cbrt(0.5);
    const seen: EvaluationDetail[] = [];
    for (let prompt = 0; prompt < 40; prompt++) {
      const weak = draw() < 0.2;
      for (let tried = 0; tried < 3; tried++) seen.push(details[weak && draw() < chance ? 1 : 0][prompt]!);
    }
    return outcomesOf(seen);
  };

  it.each([
    ["of other prompts", fresh, 11],
    ["of an evaluation that grows", growing, 12],
    ["of prompts that are tried several times", clustered, 13],
  ] as const)(
    "keep it over 10,000 uses: looks %s",
    (_, trialsOf, seed) => {
      const shared = simulated(seed, trialsOf, (look) => errorRateOfLook(ALPHA, look));
      expect(shared.passes).toBeLessThanOrEqual(ALPHA);
      expect(shared.failures).toBeLessThanOrEqual(ALPHA);
      // Neither is kept by never deciding.
      expect(shared.passes + shared.failures).toBeGreaterThan(0.005);
      const alone = simulated(seed, trialsOf, () => ALPHA, 500);
      expect(Math.max(alone.passes, alone.failures)).toBeGreaterThan(2 * ALPHA);
    },
    180_000,
  );
});

/** Draws in [0, 1) by a 32-bit counter that is mixed (mulberry32): 10,000 uses need 10 million. */
function uniforms(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
