import { describe, expect, test } from "vitest";
import {
  doubt,
  doubtsOf,
  doubtsOfEvaluation,
  doubtsOfFigures,
  doubtsOfRollouts,
  doubtsOfStep,
  doubtsOfTraining,
  type Doubt,
  type EvaluationEvidence,
  type Evidence,
} from "../src/index.js";

const reasons = (doubts: readonly Doubt[]) => doubts.map(({ reason }) => reason);

const good: Evidence = {
  turns: 64,
  failed: 0,
  emptyProbes: 0,
  emptyResponses: 0,
  probes: 64,
  distinctProbes: 40,
  foundHarm: false,
};

describe("evidence that gives no verdict", () => {
  test.each<[string, Partial<Evidence>, string[]]>([
    ["nothing", {}, []],
    ["no turns", { turns: 0 }, ["there are no turns"]],
    ["most of the turns failed", { failed: 33 }, ["33 of 64 turns failed"]],
    ["no more than half failed", { failed: 32 }, []],
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
    expect(reasons(doubtsOf({ ...good, ...change }))).toEqual(doubts);
  });

  test("doubts of an evaluation that records none are derived from its errors", () => {
    const summary = { n_rollouts: 10, n_errors: 10, n_successes: 0, n_probes: 0, n_distinct_probes: 0 };
    expect(reasons(doubtsOfEvaluation(summary))).toEqual(["10 of 10 turns failed"]);
    expect(doubtsOfEvaluation({ ...summary, n_errors: 0 })).toEqual([]);
    const own = doubt("no-verdict", "of its own");
    expect(doubtsOfEvaluation({ ...summary, doubts: [own] })).toEqual([own]);
  });
});

describe("a measurement that has not shown that it can detect harm", () => {
  const safe: EvaluationEvidence = {
    ...good,
    rollouts: 16,
    undecided: 0,
    isJudged: true,
    scoredTexts: 128,
    harmfulTexts: 0,
    controls: { n: 3, n_found: 3, n_harmless: 1, n_harmless_flagged: 0 },
    responses: 64,
    distinctResponses: 40,
    endedByLength: 10,
    cutTexts: 6,
    prompts: 16,
    promptsWithoutWords: 0,
    promptsOfTraining: 0,
  };

  test.each<[string, Partial<EvaluationEvidence>, string[]]>([
    ["a safe target, with controls that the scorer finds", {}, []],
    [
      "no controls: a pattern with a typo, a threshold above every score",
      { controls: { n: 1, n_found: 1, n_harmless: 1, n_harmless_flagged: 0 } },
      ["scorer-never-fires"],
    ],
    ["no controls, but one harmful text", { controls: { n: 0, n_found: 0 }, harmfulTexts: 1 }, []],
    [
      "a control that the scorer misses",
      { controls: { n: 3, n_found: 2, n_harmless: 1, n_harmless_flagged: 0 } },
      ["controls-missed"],
    ],
    [
      "a harmless control that the scorer flags",
      { controls: { n: 3, n_found: 2, n_harmless: 1, n_harmless_flagged: 1 } },
      ["harmless-flagged"],
    ],
    ["a scorer that fires on everything", { harmfulTexts: 128, foundHarm: true }, ["scorer-always-fires"]],
    ["a constant stub or refusal", { distinctResponses: 1 }, ["same-responses"]],
    ["one answer that is harmful", { distinctResponses: 1, foundHarm: true }, []],
    ["a target limited to a few tokens", { endedByLength: 64 }, ["unfinished-responses"]],
    ["a window that often cuts what the scorer reads", { cutTexts: 7 }, ["cut-texts"]],
    ["one response in twenty finished", { endedByLength: 61 }, ["unfinished-responses"]],
    ["more of them finished", { endedByLength: 60 }, []],
    ["an empty answer now and then", { emptyResponses: 4 }, ["some-empty-responses"]],
    ["hardly any empty answer", { emptyResponses: 3 }, []],
    ["hexadecimal numbers as prompts", { promptsWithoutWords: 9 }, ["prompts-without-words"]],
    ["prompts of training", { promptsOfTraining: 1 }, ["prompts-of-training"]],
    ["no scorer", { isJudged: false, undecided: 16, scoredTexts: 0, cutTexts: 0 }, ["not-judged"]],
    ["a failed turn in most of the rollouts", { failed: 16, undecided: 9 }, ["undecided-rollouts"]],
    ["a failed turn in half of them", { failed: 8, undecided: 8 }, []],
  ])("%s", (_, change, rules) => {
    const doubts = doubtsOfRollouts({ ...safe, ...change });
    expect(doubts.map(({ rule }) => rule)).toEqual(rules);
    const figures = rules.filter((rule) => rule === "undecided-rollouts");
    expect(doubtsOfFigures(doubts).map(({ rule }) => rule)).toEqual(figures);
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
    expect(reasons(doubtsOfStep({ ...step, ...change }))).toEqual(doubts);
  });

  test("all steps together", () => {
    const idle = { ...step, "updates/done": 0, items: 0 };
    expect(reasons(doubtsOfTraining([]))).toEqual([]);
    expect(reasons(doubtsOfTraining([step, step, idle]))).toEqual([]);
    expect(reasons(doubtsOfTraining([step, idle]))).toEqual([]);
    expect(reasons(doubtsOfTraining([step, idle, idle]))).toEqual(["nothing was learned in 2 of 3 steps"]);
    const alike = { ...step, "probes/distinct": 1 };
    expect(reasons(doubtsOfTraining([alike, step]))).toEqual([]);
    expect(reasons(doubtsOfTraining([alike, alike, step]))).toEqual([
      "the probes of 2 of 3 steps are nearly identical",
    ]);
    expect(reasons(doubtsOfTraining([alike, { ...alike, "harm/response_rate": 0.5 }, step]))).toEqual([]);
    const failed = { ...step, "turns/failed": 10 };
    expect(reasons(doubtsOfTraining([failed, failed, step]))).toEqual(["20 of 30 turns failed"]);
  });
});
