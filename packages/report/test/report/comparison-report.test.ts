import { describe, expect, test } from "vitest";
import type { ComparisonRecord, EvaluationDetail, EvaluationRecord } from "@astra-rl/records";
import { summarize } from "@astra-rl/analysis";
import { comparisonReport, foundConversations, pValue, signed, table } from "../../src/report/index.js";

/** A rollout of one turn. */
function detail(probe: string, response: string, harm: number | null, nll: number): EvaluationDetail {
  return {
    overall: {
      num_turns: 1,
      num_errors: harm === null ? 1 : 0,
      mean_reward: 0.5,
      mean_probe_harm: 0,
      mean_response_harm: harm,
      first_harmful_probe_turn: null,
      first_harmful_response_turn: null,
      harmless_probe_success: null,
    },
    per_turn: [
      {
        turn: 1,
        reward: 0.5,
        probe_harm: 0,
        response_harm: harm,
        context: "Hello.\n",
        probe,
        response,
        probe_nll: nll,
        probe_tokens: 4,
        error: harm === null ? "scorer: no answer" : null,
      },
    ],
  };
}

function record(details: EvaluationDetail[], successes: number): EvaluationRecord {
  const scored = details.filter(({ per_turn }) => per_turn[0]!.response_harm !== null).length;
  const rate = successes / scored;
  return {
    version: 2,
    details,
    summary: {
      ...summarize([]),
      doubts: [],
      n_rollouts: details.length,
      n_scored: scored,
      n_errors: details.length - scored,
      n_successes: successes,
      mean_reward: 0.25,
      mean_probe_harm: 0,
      mean_response_harm: 0.5,
      median_turns_to_harm: 1.5,
      harmful_probe_rollout_rate: 0,
      success_rate: rate,
      success_rate_interval: { lower: 0.01, upper: 0.995, confidence: 0.95, method: "wilson" },
      n_harmless_probe_scored: scored,
      n_harmless_probe_successes: 1,
      harmless_probe_success_rate: 1 / scored,
      harmless_probe_success_rate_interval: { lower: 0.02, upper: 0.5, confidence: 0.95, method: "wilson" },
      n_probes: 8,
      n_harmful_probes: 2,
      n_distinct_probes: 6,
      diversity: null,
      harmful_probe_rate: 0.25,
      harmful_probe_rate_interval: {
        lower: 0.125,
        upper: 0.75,
        confidence: 0.95,
        method: "beta-binomial",
      },
      success_rate_bounds: null,
      mean_probe_nll: 1.5,
      probe_nll_by_turn: [1.25, 1.5, 2],
      harm_threshold: 0.5,
    },
  };
}

const comparison: ComparisonRecord = {
  n_pairs: 3,
  n_excluded: 1,
  before: 0,
  after: 2 / 3,
  difference: 2 / 3,
  difference_interval: { lower: -0.1, upper: 0.9, confidence: 0.95, method: "newcombe" },
  p_value: 0.25,
  n_only_before: 0,
  n_only_after: 2,
  harmless_probe: {
    n_pairs: 3,
    before: 0,
    after: 1 / 3,
    difference: 1 / 3,
    difference_interval: { lower: -0.2, upper: 0.7, confidence: 0.95, method: "newcombe" },
    p_value: 0.5,
  },
  distinct_probes_kept: 0.75,
  reward_difference: -0.125,
  reward_difference_interval: null,
  reward_p_value: 0.3,
  probe_nll_difference: 0.2,
  version: 1,
};

const after = record(
  [
    detail("likely", "rude", 0.9, 0.5),
    detail("rare", "rude", 0.8, 3),
    detail("likely", "rude again", 0.7, 0.4),
    detail("harmless", "kind", 0.1, 0.1),
    detail("\u001B[2J", "unscored", null, 0.2),
  ],
  3,
);

test("the report shows the figures of both sides and the difference", () => {
  const before = record([detail("a", "b", 0, 1), detail("a", "b", 0.2, 1)], 0);
  const lines = comparisonReport({ before, after, comparison, conversations: 2 });
  const text = lines.join("\n").replace(/ +/g, " ");
  expect(text).toContain("attack success rate 0.0 % (0/2) 75.0 % (3/4) +66.7 points");
  expect(text).toContain("95 % interval 1.0 % to 99.5 % 1.0 % to 99.5 % −10.0 to +90.0");
  expect(text).toContain("p = 0.250");
  expect(text).toContain("with harmless probes only 50.0 % (1/2) 25.0 % (1/4) +33.3 points");
  expect(text).toContain("95 % interval 2.0 % to 50.0 % 2.0 % to 50.0 % −20.0 to +70.0");
  expect(text).toContain("p = 0.500");
  expect(text).toContain("median turns to harm 1.50 1.50\nharmful probes 25.0 % (2/8) 25.0 % (2/8)");
  // A difference that is not compared is left blank: "–" would say that it is unknown.
  expect(text).toContain("95 % interval 12.5 % to 75.0 % 12.5 % to 75.0 %\ndistinct probes");
  expect(text).toContain("distinct probes 6 of 8 6 of 8 75.0 % kept");
  expect(text).toContain("mean probe NLL, nats a token 1.50 1.50 +0.20");
  expect(text).toContain("in the first turn, the last 1.25, 2.00 1.25, 2.00");
  expect(text).toContain("mean reward of a turn 0.25 0.25 −0.13");
  expect(text).toContain("rollouts (with errors) 2 (0) 5 (1) 3 pairs");
  expect(text).toContain("A conversation before training without a harmful response (2 of 2 had none):");
  expect(text).toContain(
    "2 found conversations after training, those with harmless probes first, then by likelihood:",
  );
  expect(text).toContain("prompt Hello.\n");
  expect(text).toContain("target rude again [harm 0.70 ◀]");
});

test("success with each cluster once follows success, and is omitted if no evaluation measured it", () => {
  const side = (rate: number | null): EvaluationRecord => {
    const evaluated = record([detail("a", "b", 0, 1)], 0);
    const diversity = {
      n_distinct_attacks: 3,
      n_attacks: 4,
      n_clusters: 2,
      effective_clusters: 2,
      cluster_success_rate: rate,
      self_bleu: null,
      embedding_distance: null,
      n_structures: 3,
      structure_distance: null,
    };
    const summary = { ...evaluated.summary, diversity: rate === null ? null : diversity };
    return { ...evaluated, summary: summary as unknown as EvaluationRecord["summary"] };
  };
  const names = (before: EvaluationRecord, after: EvaluationRecord) =>
    comparisonReport({ before, after, comparison }).map((line) => line.replace(/ +/gu, " "));
  const lines = names(side(null), side(0.125));
  const at = lines.findIndex((line) => line.startsWith(" success, each cluster once"));
  expect(lines[at]).toBe(" success, each cluster once – 12.5 %");
  expect(lines.slice(0, at).findLastIndex((line) => line.startsWith("attack success rate"))).toBe(at - 3);
  expect(names(side(null), side(null)).join("\n")).not.toContain("each cluster once");
});

describe("found conversations", () => {
  test("lists successes only, the most likely first, each probe once, with hostile text escaped", () => {
    expect(foundConversations(after, 5).map(({ per_turn }) => per_turn[0]!.response)).toEqual([
      "rude again",
      "rude",
    ]);
    expect(foundConversations(after, 1)).toHaveLength(1);
    const hostile = record([detail("\u001B[2J", "\u009Bx", 1, 1)], 1);
    const lines = comparisonReport({ before: hostile, after: hostile, comparison });
    // oxlint-disable-next-line no-control-regex
    expect(lines.join("")).not.toMatch(/[\u0000-\u001F\u007F-\u009F]/u);
  });

  test("says so if there are none", () => {
    const none = record([detail("a", "b", 0, 1)], 0);
    expect(comparisonReport({ before: none, after: none, comparison })).toContain(
      "No conversation led to a harmful response.",
    );
  });
});

test.each([
  [0.5, "p = 0.500"],
  [0.0012, "p = 0.001"],
  [2e-14, "p = 2e-14"],
  [null, "p unknown"],
])("p-value %s", (value, text) => {
  expect(pValue(value)).toBe(text);
});

test("tables align by characters, signs are shown", () => {
  expect(
    table(
      ["a", "b"],
      [
        ["日本", "1"],
        ["x", "−22"],
      ],
    ),
  ).toEqual(["a      b", "────────", "日本     1", "x    −22"]);
  expect([signed(0.5), signed(-0.5), signed(null)]).toEqual(["+0.50", "−0.50", "–"]);
});

test("tables fit a terminal of 80 columns if their cells do", () => {
  const wide = table(
    ["", "before", "after", "difference"],
    [["x".repeat(28), "97.1 % (123/384)", "100.0 % (384/384)", "+80.1 to +99.9"]],
  );
  expect(Math.max(...wide.map((line) => Array.from(line).length))).toBeLessThanOrEqual(80);
  expect(table(["a", "b"], [["1", "2"]])[2]).toBe("1   2");
});
