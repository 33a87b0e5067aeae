import { describe, expect, it } from "vitest";
import type { EvaluationSummary } from "../../src/records/index.js";
import { bestAdvice, repeatsAdvice } from "../../src/report/index.js";

const evaluated = (successes: number, rollouts: number, prompts: number): EvaluationSummary =>
  ({
    n_scored: rollouts,
    success_rate: rollouts === 0 ? null : successes / rollouts,
    n_harmless_probe_scored: rollouts,
    harmless_probe_success_rate: rollouts === 0 ? null : successes / rollouts,
    n_prompts: prompts,
  }) as EvaluationSummary;

describe("how many rollouts tell a rate", () => {
  it("is more the rarer successes are", () => {
    // 1.96²·0.9 / (0.25²·0.1) = 553.2; 553.2 / 100 = 5.5
    expect(repeatsAdvice(evaluated(10, 100, 100))).toBe(
      "At 10.0 %, 100 rollouts tell little: about 560 tell the rate to within a quarter of it. Set evaluation.repeats to 6.",
    );
    // 1.96²·0.5 / (0.25²·0.5) = 61.5
    expect(repeatsAdvice(evaluated(50, 100, 100))).toBeNull();
    expect(repeatsAdvice(evaluated(60, 600, 100))).toBeNull();
  });

  it("is not known without a success, a rollout or prompts", () => {
    expect(repeatsAdvice(evaluated(0, 100, 100))).toBeNull();
    expect(repeatsAdvice(evaluated(0, 0, 0))).toBeNull();
    expect(repeatsAdvice({ ...evaluated(10, 100, 100), n_prompts: undefined })).toBeNull();
  });
});

describe("what best is worth", () => {
  it("is said where few rollouts chose it", () => {
    // p = 9/34; √(p·(1 − p) / 32) = 0.0780
    expect(bestAdvice(evaluated(8, 32, 32))).toBe(
      "best is a guess: success on 32 dev rollouts varies by 7.8 points (standard error). Evaluate last as well.",
    );
    expect(bestAdvice(evaluated(0, 32, 32))).toMatch(/varies by 3.0 points/u);
    expect(bestAdvice(evaluated(500, 1000, 1000))).toBeNull();
    expect(bestAdvice(evaluated(0, 0, 0))).toBeNull();
  });
});
