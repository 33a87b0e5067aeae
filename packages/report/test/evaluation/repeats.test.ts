import { describe, expect, it } from "vitest";
import { compareEvaluations, statistics, summarize } from "@astra-rl/analysis";
import type { EvaluationDetail } from "@astra-rl/records";
import { SeededStream } from "../../../base/test/support/seeded-stream.js";
import { evaluationReport } from "../../src/report/index.js";

/** A rollout from a prompt, by the harm of its responses; null for one that failed. */
function rollout(prompt: string, ...harms: (number | null)[]): EvaluationDetail {
  const first = harms.findIndex((harm) => (harm ?? 0) >= 0.5);
  return {
    per_turn: harms.map((harm, at) => ({
      turn: at + 1,
      context: at === 0 ? prompt : `${prompt}…`,
      probe: `p${at}`,
      response: "r",
      reward: 0,
      probe_harm: 0,
      response_harm: harm,
      probe_nll: null,
      probe_tokens: null,
      error: harm === null ? "target: gone" : null,
    })),
    overall: {
      prompt: Number(/\d+$/u.exec(prompt)?.[0] ?? prompt.charCodeAt(0)),
      num_turns: harms.length,
      num_errors: harms.filter((harm) => harm === null).length,
      mean_reward: 0,
      mean_probe_harm: 0,
      mean_response_harm: 0,
      first_harmful_probe_turn: null,
      first_harmful_response_turn: first < 0 ? null : first + 1,
      harmless_probe_success: harms.includes(null) ? null : first >= 0,
    },
  } as EvaluationDetail;
}

describe("success by turn", () => {
  it("is the share of rollouts up to each turn, by hand", () => {
    const details = [
      rollout("a", 0, 1, 1),
      rollout("b", 1, 0, 0),
      rollout("c", 0, 0, 0),
      rollout("d", 0, 0, 1),
    ];
    expect(summarize(details).success_by_turn).toEqual([0.25, 0.5, 0.75]);
    expect(summarize([]).success_by_turn).toEqual([]);
    // Wilson's, of 1 and 3 of 4 rollouts.
    const [first, , third] = summarize(details).success_by_turn_intervals!;
    expect(first!.lower).toBeCloseTo(0.0456, 4);
    expect(first!.upper).toBeCloseTo(0.6994, 4);
    expect(third!.lower).toBeCloseTo(1 - 0.6994, 4);
    // Where a rollout ended early, the curve has no such interval.
    expect(summarize([...details, rollout("e", 0, null)]).success_by_turn_intervals).toBeUndefined();
  });

  it("censors a rollout at its failure, as Kaplan and Meier do", () => {
    // At the second turn three are at risk, of which one succeeds; at the third one, which does not.
    const details = [
      rollout("a", 1, 0, 0),
      rollout("b", 0, 1, 0),
      rollout("c", 0, null),
      rollout("d", 0, 0, null),
    ];
    const [first, second, third] = summarize(details).success_by_turn!;
    expect(first).toBeCloseTo(1 / 4, 12);
    // b and d are at risk: c failed in this turn.
    expect(second).toBeCloseTo(1 - (3 / 4) * (1 / 2), 12);
    expect(third).toBeCloseTo(second!, 12);
  });
});

describe("several tries from a prompt", () => {
  const details = [
    ...[1, 0, 0].map((harm) => rollout("a", harm)),
    ...[0, 0, 0].map((harm) => rollout("b", harm)),
    ...[1, 1, 1].map((harm) => rollout("c", harm)),
    rollout("d", 1),
  ];

  it("estimate the chance of a success within k attempts, by hand", () => {
    const { success_by_attempts: found } = summarize(details);
    expect(found!.map(({ attempts, n_prompts }) => [attempts, n_prompts])).toEqual([
      [1, 4],
      [2, 3],
      [3, 3],
    ]);
    expect(found![0]!.rate).toBeCloseTo((1 / 3 + 0 + 1 + 1) / 4, 12);
    // Of two of a's three tries, one is the success with 1 − C(2, 2) / C(3, 2).
    expect(found![1]!.rate).toBeCloseTo((2 / 3 + 0 + 1) / 3, 12);
    expect(found![2]!.rate).toBeCloseTo((1 + 0 + 1) / 3, 12);
    expect(summarize([rollout("a", 1), rollout("b", 0)]).success_by_attempts).toBeUndefined();
    const lines = evaluationReport({ summary: summarize(details) }).join("\n");
    expect(lines).toMatch(/within 2 tries from a prompt +55\.6 % of 3/u);
    expect(lines).toMatch(/within 3 tries from a prompt +66\.7 % of 3/u);
  });

  it("are not independent trials: the interval counts prompts", () => {
    const same = Array.from({ length: 20 }, (_, at) =>
      Array.from({ length: 8 }, () => rollout(`p${at}`, at % 2)),
    ).flat();
    const { success_rate: rate, success_rate_interval: interval } = summarize(same);
    expect([rate, interval!.method]).toEqual([0.5, "beta-binomial"]);
    const prompts = statistics.wilsonInterval(10, 20)!;
    expect(interval!.upper - interval!.lower).toBeGreaterThan(0.95 * (prompts.upper - prompts.lower));
    expect(summarize([rollout("a", 1), rollout("b", 0)]).success_rate_interval!.method).toBe("wilson");
  });

  it("the interval covers the truth in 93 to 97 % of evaluations if success rates differ between prompts", () => {
    let covered = 0;
    const runs = 2000;
    for (let run = 0; run < runs; run++) {
      const stream = new SeededStream(run, "clusters");
      const tried = Array.from({ length: 60 }, (_, at) => {
        // Half of the prompts succeed in 10 % of tries, half in 60 %.
        const chance = stream.uniform() < 0.5 ? 0.1 : 0.6;
        return Array.from({ length: 5 }, () => rollout(`p${at}`, stream.uniform() < chance ? 1 : 0));
      }).flat();
      const { lower, upper } = summarize(tried).success_rate_interval!;
      if (lower <= 0.35 && 0.35 <= upper) covered += 1;
    }
    expect(covered / runs).toBeGreaterThanOrEqual(0.93);
    expect(covered / runs).toBeLessThanOrEqual(0.97);
  }, 60_000);

  it("are compared prompt by prompt", () => {
    const evaluated = (harmful: (prompt: number, attempt: number) => number) => {
      const all = Array.from({ length: 12 }, (_, at) =>
        Array.from({ length: 6 }, (__, attempt) => rollout(`p${at}`, harmful(at, attempt))),
      ).flat();
      return { summary: summarize(all), details: all };
    };
    // One prompt of twelve changes in all its tries: by rollouts that were significant.
    const record = compareEvaluations(
      evaluated(() => 0),
      evaluated((prompt) => (prompt === 0 ? 1 : 0)),
    );
    expect(record.difference).toBeCloseTo(1 / 12, 12);
    expect(statistics.exactMcNemar(0, 6)).toBeLessThan(0.05);
    expect(record.p_value).toBe(1);
    expect(record.difference_interval!.method).toBe("bootstrap-clustered");
    expect(record.difference_interval!.lower).toBe(0);
  });
});
