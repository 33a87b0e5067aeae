import { describe, expect, it } from "vitest";
import type { EvaluationSummary } from "@astra-rl/records";
import { bestAdvice, neededRollouts, repeatsAdvice, successError } from "../../src/report/index.js";

const evaluated = (successes: number, rollouts: number, prompts: number): EvaluationSummary =>
  ({
    n_scored: rollouts,
    success_rate: rollouts === 0 ? null : successes / rollouts,
    n_harmless_probe_scored: rollouts,
    harmless_probe_success_rate: rollouts === 0 ? null : successes / rollouts,
    n_prompts: prompts,
  }) as EvaluationSummary;

describe("the number of rollouts for a rate", () => {
  it("grows as successes become rarer", () => {
    // 1.96²·0.9 / (0.25²·0.1) = 553.2; 553.2 / 100 = 5.5
    const rare = evaluated(10, 100, 100);
    expect(neededRollouts(rare)).toEqual({ rollouts: 554, repeats: 6 });
    expect(repeatsAdvice(rare)).toMatch(/554.*evaluation\.repeats to 6/u);
    // 1.96²·0.5 / (0.25²·0.5) = 61.5
    expect(neededRollouts(evaluated(50, 100, 100))).toBeNull();
    expect(neededRollouts(evaluated(60, 600, 100))).toBeNull();
    expect(repeatsAdvice(evaluated(60, 600, 100))).toBeNull();
  });

  it("is unknown without a success, a rollout or prompts", () => {
    expect(neededRollouts(evaluated(0, 100, 100))).toBeNull();
    expect(neededRollouts(evaluated(0, 0, 0))).toBeNull();
    expect(neededRollouts(evaluated(10, 100, 0))).toBeNull();
  });
});

describe("the uncertainty of best", () => {
  it("is reported if few rollouts selected it", () => {
    // p = 9/34; √(p·(1 − p) / 32) = 0.0780
    expect(successError(evaluated(8, 32, 32))).toBeCloseTo(0.078, 4);
    // p = 1/34; √(p·(1 − p) / 32) = 0.0299
    expect(successError(evaluated(0, 32, 32))).toBeCloseTo(0.0299, 4);
    expect(successError(evaluated(0, 0, 0))).toBeNull();
    expect(bestAdvice(evaluated(8, 32, 32))).not.toBeNull();
    expect(bestAdvice(evaluated(500, 1000, 1000))).toBeNull();
    expect(bestAdvice(evaluated(0, 0, 0))).toBeNull();
  });
});
