import { describe, expect, test } from "vitest";
import {
  doubtsOf,
  doubtsOfEvaluation,
  doubtsOfStep,
  doubtsOfTraining,
  type Evidence,
} from "../../src/records/index.js";

const good: Evidence = {
  turns: 64,
  failed: 0,
  emptyProbes: 0,
  emptyResponses: 0,
  probes: 64,
  distinctProbes: 40,
  foundHarm: false,
};

describe("what no verdict rests on", () => {
  test.each<[string, Partial<Evidence>, string[]]>([
    ["nothing", {}, []],
    ["no turns", { turns: 0 }, ["no turn was taken"]],
    ["most of the turns failed", { failed: 33 }, ["33 of 64 turns failed"]],
    ["no more than half failed", { failed: 32 }, []],
    [
      "a failed turn in most of the rollouts",
      { failed: 16, rollouts: 16, undecided: 9 },
      ["9 of 16 rollouts have a response without a score"],
    ],
    ["a failed turn in half of them", { failed: 8, rollouts: 16, undecided: 8 }, []],
    ["empty probes", { emptyProbes: 64, distinctProbes: 1 }, ["64 of 64 probes are empty"]],
    ["empty responses", { emptyResponses: 33 }, ["33 of 64 responses are empty"]],
    ["one probe over and over", { distinctProbes: 1 }, ["64 probes are only 1 different text"]],
    ["two", { distinctProbes: 3 }, ["64 probes are only 3 different texts"]],
    ["few probes", { probes: 7, distinctProbes: 1 }, []],
    ["one probe that draws out harm", { distinctProbes: 1, foundHarm: true }, []],
    [
      "what is not known",
      { failed: null, emptyProbes: null, emptyResponses: null, distinctProbes: null },
      [],
    ],
  ])("%s", (_, change, doubts) => {
    expect(doubtsOf({ ...good, ...change })).toEqual(doubts);
  });

  test("records of before anybody counted are doubted by their errors", () => {
    const summary = { n_rollouts: 10, n_errors: 10, n_successes: 0, n_probes: 0, n_distinct_probes: 0 };
    expect(doubtsOfEvaluation(summary)).toEqual(["10 of 10 turns failed"]);
    expect(doubtsOfEvaluation({ ...summary, n_errors: 0 })).toEqual([]);
    expect(doubtsOfEvaluation({ ...summary, doubts: ["of its own"] })).toEqual(["of its own"]);
  });
});

describe("training", () => {
  const step = {
    "turns/done": 10,
    "turns/failed": 0,
    "turns/empty_probes": 0,
    "turns/empty_responses": 0,
    "probes/distinct": 9,
    "updates/done": 2,
    "updates/skipped": 0,
    "gradient/norm": 0.5,
    items: 8,
  };

  test.each<[string, Record<string, number | null>, string[]]>([
    ["learned", {}, []],
    ["nothing to learn from", { "updates/done": 0, items: 0 }, ["nothing was learned from it"]],
    ["all updates left out", { "updates/done": 0, "updates/skipped": 2 }, ["nothing was learned from it"]],
    ["gradients of zero", { "gradient/norm": 0 }, ["nothing was learned from it"]],
    ["a gradient that waits", { "updates/done": 0, "gradient/norm": null }, []],
    ["all failed", { "turns/failed": 10 }, ["10 of 10 turns failed"]],
    ["one probe", { "probes/distinct": 1 }, ["10 probes are only 1 different text"]],
  ])("a step: %s", (_, change, doubts) => {
    expect(doubtsOfStep({ ...step, ...change })).toEqual(doubts);
  });

  test("all steps together", () => {
    const idle = { ...step, "updates/done": 0, items: 0 };
    expect(doubtsOfTraining([])).toEqual([]);
    expect(doubtsOfTraining([step, step, idle])).toEqual([]);
    expect(doubtsOfTraining([step, idle])).toEqual([]);
    expect(doubtsOfTraining([step, idle, idle])).toEqual(["nothing was learned in 2 of 3 steps"]);
    const alike = { ...step, "probes/distinct": 1 };
    expect(doubtsOfTraining([alike, step])).toEqual([]);
    expect(doubtsOfTraining([alike, alike, step])).toEqual(["the probes of 2 of 3 steps hardly differ"]);
    expect(doubtsOfTraining([alike, { ...alike, "harm/response_rate": 0.5 }, step])).toEqual([]);
    const failed = { ...step, "turns/failed": 10 };
    expect(doubtsOfTraining([failed, failed, step])).toEqual(["20 of 30 turns failed"]);
  });
});
