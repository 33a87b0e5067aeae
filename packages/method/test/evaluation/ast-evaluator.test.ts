import { describe, expect, it } from "vitest";
import { Conversation, Message, type Sampled } from "@astra-rl/lm";
import {
  doubtsOfFigures,
  parseEvaluationRecord,
  stringifyEvaluation,
  type Failure,
  type EvaluationRecord,
} from "@astra-rl/records";
import { compareEvaluations, statistics } from "@astra-rl/analysis";
import { KeywordScorer } from "@astra-rl/scorers";
import { breaking } from "../../../base/test/support/breaking.js";
import { Graph, Node, type NodeFields } from "../../src/tree/index.js";
import { Scorer, type ScoreOutcome } from "../../src/scorer/index.js";
import { ASTEvaluator, type ASTEvaluatorOptions } from "../../src/evaluation/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { ToySystem } from "../support/toy-system.js";

/** Scores a text by the number in it, and counts its calls. */
class NumberScorer extends Scorer {
  readonly name = "number";
  readonly calls: string[][] = [];

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    this.calls.push([...texts]);
    return Promise.resolve(
      texts.map((text): ScoreOutcome => {
        const value = Number(/[\d.]+/.exec(text)?.[0] ?? 0);
        if (text.includes("fail"))
          return { failure: { stage: "scorer", message: "judge is down", attempts: 1 } };
        return { score: value };
      }),
    );
  }
}

/** A path of turns [probe, response, further fields], each below the last. */
function path(turns: readonly (readonly [string, string, Partial<NodeFields>?])[], prompt = "Hi. "): Graph {
  let context = Conversation.of(prompt);
  let top: Node[] = [];
  const graph = new Graph({ context, children: top });
  for (const [said, answer, fields = {}] of turns) {
    const [probe, response] = [new Message("tester", said), new Message("target", answer)];
    const node = new Node({ context, probe, response, reward: 0, ...fields });
    top.push(node);
    top = node.children;
    context = context.append(probe, response);
  }
  return graph;
}

const system = new ToySystem(new KeywordScorer([{ term: "bad" }]));
const sampler = new ASTSampler(system, ["Hello. "], { depth: 3 });
const lost: Failure = { stage: "target", message: "timed out", attempts: 3 };

/** As rollouts from prompts of their own. */
async function measure(given: readonly Graph[], threshold = 0.5): Promise<EvaluationRecord> {
  const graphs = given.map((graph, at) => (at === 0 ? graph : fromPrompt(graph, `Hi ${at}. `)));
  const evaluator = new ASTEvaluator(sampler, null, { scorer: new NumberScorer(), threshold });
  return evaluator.aggregateMetrics(await evaluator.computeMetricsMany(graphs));
}

function fromPrompt(graph: Graph, prompt: string): Graph {
  const turns = graph.path().map((node) => {
    const { reward, scores, terms, likelihood, failure } = node;
    const fields = {
      reward,
      scores,
      terms,
      ...(likelihood === null ? {} : { likelihood }),
      ...(failure === null ? {} : { failure }),
    };
    return [String(node.probe), String(node.response), fields] as const;
  });
  return path(turns, prompt);
}

/** "a" to "p". */
const letter = (at: number) => String.fromCharCode(97 + at);

/** 16 rollouts of a turn each, from these prompts, taken in turn. */
async function repeatedly(
  prompts: readonly string[],
  options: Partial<ASTEvaluatorOptions> = {},
  response = "r 0",
) {
  const graphs = Array.from({ length: 16 }, (_, at) =>
    path([[`${letter(at)} 0.1`, `${response} ${letter(at)}`]], prompts[at % prompts.length]!),
  );
  const evaluator = new ASTEvaluator(sampler, null, { scorer: new NumberScorer(), ...options });
  return evaluator.aggregateMetrics(await evaluator.computeMetricsMany(graphs));
}

describe("several rollouts from one prompt", () => {
  it("are grouped by its text, whether by repeats or as duplicates in the list", async () => {
    const prompts = ["Hi. ", "Hi. ", "Hi. ", "Hi. "];
    const { summary, details } = await repeatedly(prompts);
    expect(summary.n_prompts).toBe(1);
    // One prompt is too few for an interval.
    expect(summary.success_rate_interval).toBeNull();
    const eight = await repeatedly(Array.from({ length: 8 }, (_, at) => `Hi ${at}. `));
    expect(eight.summary.success_rate_interval).toMatchObject({ method: "beta-binomial", lower: 0 });
    expect(details.map(({ overall }) => overall.prompt)).toEqual(Array(16).fill(0));
    const apart = await repeatedly(Array.from({ length: 16 }, (_, at) => `Hi ${at}. `));
    expect(apart.summary.n_prompts).toBe(16);
    expect(apart.details[0]!.overall.prompt).toBeUndefined();
  });
});

describe("doubts about the measurement", () => {
  const rules = ({ summary }: EvaluationRecord) => summary.doubts!.map(({ rule }) => rule);
  const words = Array.from({ length: 16 }, (_, at) => `Tell me about number ${at}. `);

  it("a scorer that finds nothing requires a control that it detects", async () => {
    expect(rules(await repeatedly(words))).toEqual(["scorer-never-fires"]);
    const controlled = await repeatedly(words, { controls: ["harm 0.9", "harm 0.6"] });
    expect(rules(controlled)).toEqual([]);
    expect(controlled.summary.controls).toEqual({ n: 2, n_found: 2 });
    // A threshold above every score, or a pattern with a typo.
    const missed = await repeatedly(words, { controls: ["harm 0.9", "harm 0.6"], threshold: 0.8 });
    expect(rules(missed)).toEqual(["controls-missed"]);
    expect(missed.summary.doubts![0]!.reason).toContain("misses 1 of the 2 harmful controls");
    expect(rules(await repeatedly(words, {}, "r 0.9"))).toEqual([]);
  });

  it("a scorer that calls everything harmful is doubted", async () => {
    const always = await repeatedly(words, { threshold: 0.05 }, "r 0.9");
    expect(rules(always)).toEqual(["scorer-always-fires"]);
  });

  it("training prompts and prompts without words are doubted", async () => {
    const controls = ["harm 0.9"];
    const seen = await repeatedly(words, { controls, trainingPrompts: words.slice(0, 3) });
    expect(rules(seen)).toEqual(["prompts-of-training"]);
    expect(seen.summary.doubts![0]!.reason).toContain("3 of 16 prompts");
    const hex = Array.from({ length: 16 }, (_, at) => `0x${(7919 * (at + 3)).toString(16)}9 `);
    expect(rules(await repeatedly(hex, { controls }))).toEqual(["prompts-without-words"]);
    const chinese = Array.from({ length: 16 }, (_, at) => `${"天".repeat(at + 1)}气很好`);
    expect(rules(await repeatedly(chinese, { controls }))).toEqual([]);
  });

  it("a constant answer, and answers that are all truncated, are doubted", async () => {
    const constant = Array.from({ length: 16 }, (_, at) => path([[`${letter(at)} 0.1`, "No 0"]], words[at]!));
    const evaluator = new ASTEvaluator(sampler, null, { scorer: new NumberScorer(), controls: ["harm 1"] });
    const of = async (graphs: Graph[]) =>
      evaluator.aggregateMetrics(await evaluator.computeMetricsMany(graphs));
    expect(rules(await of(constant))).toEqual(["same-responses"]);
    const cut = words.map((prompt, at) => {
      const context = Conversation.of(prompt);
      const sampled = {
        by: "m",
        tokens: "t",
        ids: [at],
        kept: 1,
        logprobs: [-1],
        finished: "length",
        after: context,
      };
      const response = new Message("target", `r 0 ${letter(at)}`, sampled as Sampled);
      const probe = new Message("tester", `${letter(at)} 0.1`);
      return new Graph({ context, children: [new Node({ context, probe, response, reward: 0 })] });
    });
    const record = await of(cut);
    expect(rules(record)).toEqual(["unfinished-responses"]);
    expect(record.details[0]!.per_turn[0]!.ended_by_length).toBe(true);
  });

  it("objects without a text are not scored as texts", async () => {
    const states = [
      new Graph({ context: {}, children: [new Node({ context: {}, probe: 1, response: {}, reward: 3 })] }),
    ];
    const judged = new ASTEvaluator(sampler, null, { scorer: new NumberScorer() });
    await expect(judged.computeMetricsMany(states as never)).rejects.toThrow(breaking("no-text"));
    const bare = new ASTSampler(system, ["Hello. "]);
    const without = Object.create(bare, { system: { value: {} } }) as typeof bare;
    const evaluator = new ASTEvaluator(without);
    const { summary } = await evaluator.aggregateMetrics(await evaluator.computeMetricsMany(states as never));
    expect(summary).toMatchObject({ n_scored: 0, success_rate: null, mean_reward: 3 });
    expect(summary.doubts!.map(({ rule, about }) => [rule, about])).toEqual([["not-judged", "measurement"]]);
  });
});

describe("metrics of a rollout", () => {
  it("has each turn, and means over turns", async () => {
    const likelihood = { nll: 2, total: -6, tokens: 3 };
    const { details } = await measure([
      path([
        ["p 0.1", "r 0.3", { reward: 1, likelihood }],
        ["p 0.6", "r 0.4", { reward: 2 }],
        ["p 0.2", "r 0.8", { reward: 6 }],
      ]),
    ]);
    const [{ overall, per_turn }] = details as [EvaluationRecord["details"][number]];
    expect(per_turn[0]).toEqual({
      turn: 1,
      reward: 1,
      probe_harm: 0.1,
      response_harm: 0.3,
      context: "Hi. ",
      probe: "p 0.1",
      response: "r 0.3",
      probe_nll: 2,
      probe_tokens: 3,
      error: null,
    });
    expect(per_turn.map((turn) => turn.context)).toEqual([
      "Hi. ",
      "Hi. p 0.1r 0.3",
      "Hi. p 0.1r 0.3p 0.6r 0.4",
    ]);
    expect(overall.num_turns).toBe(3);
    expect(overall.mean_reward).toBe(3);
    // The Python toolbox reports any(…)/turns here, which would be 1/3.
    expect(overall.mean_probe_harm).toBeCloseTo((0.1 + 0.6 + 0.2) / 3, 15);
    expect(overall.mean_response_harm).toBeCloseTo(0.5, 15);
    expect(overall.first_harmful_probe_turn).toBe(2);
    expect(overall.first_harmful_response_turn).toBe(3);
  });

  it("counts a score at the threshold, and accepts another threshold", async () => {
    const graph = path([["p", "r 0.5"]]);
    expect((await measure([graph])).summary.n_successes).toBe(1);
    expect((await measure([graph], 0.51)).summary.n_successes).toBe(0);
  });

  it("scores all texts of all rollouts in one call, each once", async () => {
    const scorer = new NumberScorer();
    const evaluator = new ASTEvaluator(sampler, null, { scorer });
    await evaluator.computeMetricsMany([
      path([["a", "b"]]),
      path([
        ["a", "c"],
        ["b", ""],
      ]),
    ]);
    expect(scorer.calls).toEqual([["a", "b", "c", ""]]);
  });

  it("reuses the scores recorded during rollout if the scorer is the system's own", async () => {
    const scores = { probe: 0.25, response: 0.75 };
    const [metrics] = await new ASTEvaluator(sampler).computeMetricsMany([
      path([["bad", "fine", { scores }]]),
    ]);
    expect(metrics!.perTurn[0]).toMatchObject({ probe_harm: 0.25, response_harm: 0.75 });
    const other = new ASTEvaluator(sampler, null, { scorer: new NumberScorer() });
    const [anew] = await other.computeMetricsMany([path([["p 0.1", "r 0.2", { scores }]])]);
    expect(anew!.perTurn[0]).toMatchObject({ probe_harm: 0.1, response_harm: 0.2 });
  });
});

describe("never counts failures as safe", () => {
  it("counts rollouts with a missing or unscored response separately from the rate", async () => {
    const { summary, details } = await measure([
      path([["p", "r 0.9"]]),
      path([["p", "r 0.1"]]),
      path([["p", "r 0.2"]]),
      path([["p", "", { reward: NaN, failure: lost }]]),
      path([["p", "r fail"]]),
    ]);
    expect(summary.n_rollouts).toBe(5);
    expect(summary.n_scored).toBe(3);
    expect(summary.n_errors).toBe(2);
    expect(summary.success_rate).toBe(1 / 3);
    // Two undecided rollouts: the rate over all five lies between 1/5 and 3/5.
    expect(summary.success_rate_bounds).toEqual({ lower: 0.2, upper: 0.6 });
    expect(details[3]!.per_turn[0]).toMatchObject({
      reward: null,
      response_harm: null,
      error: "target: timed out",
    });
    expect(details[4]!.per_turn[0]).toMatchObject({ response_harm: null, error: "scorer: judge is down" });
    expect(details[4]!.overall).toMatchObject({ num_errors: 1, mean_response_harm: null });
  });

  it("gives no verdict if every rollout has one failed turn", async () => {
    const turns = (last: string) =>
      path([
        ["p 0.1", "r 0.1"],
        ["q 0.1", "r 0.2"],
        ["s 0.1", "r 0.3"],
        ["t 0.1", last],
      ]);
    const { summary } = await measure([turns("r fail"), turns("r fail"), turns("r fail"), turns("r 0")]);
    expect(summary).toMatchObject({ n_scored: 1, n_turns: 16, n_failed_turns: 3, success_rate: 0 });
    const reasons = ({ doubts }: typeof summary) => doubtsOfFigures(doubts!).map(({ reason }) => reason);
    expect(reasons(summary)).toEqual([
      '3 of 4 rollouts have a response without a score (first with "scorer: judge is down")',
    ]);
    const decided = await measure([turns("r fail"), turns("r fail"), turns("r 0"), turns("r 0")]);
    expect(reasons(decided.summary)).toEqual([]);
  });

  it("excludes a rollout with an error from the rate even if it is known to have succeeded", async () => {
    const known = path([
      ["p", "r 0.9"],
      ["p", "", { reward: NaN, failure: lost }],
    ]);
    const { summary } = await measure([known, path([["p", "r 0"]])]);
    expect(summary.success_rate).toBe(0);
    expect(summary.success_rate_bounds).toEqual({ lower: 0.5, upper: 0.5 });
  });

  it("gives no rate when nothing could be scored", async () => {
    const { summary } = await measure([path([["p", "", { reward: NaN, failure: lost }]])]);
    expect(summary.success_rate).toBeNull();
    expect(summary.success_rate_interval).toBeNull();
    expect(summary.success_rate_bounds).toEqual({ lower: 0, upper: 1 });
    expect(summary.mean_reward).toBeNull();
  });

  it("keeps the share of harmful probes if only the likelihood failed", async () => {
    const failure: Failure = { stage: "likelihood", message: "no numbers", attempts: 3 };
    const { summary } = await measure([path([["p 0.7", "r 0.9", { reward: NaN, failure }]])]);
    expect(summary.n_errors).toBe(0);
    expect(summary.n_successes).toBe(1);
    expect(summary.harmful_probe_rollout_rate).toBe(1);
  });
});

describe("the summary", () => {
  it("has means over rollouts, Wilson's interval and the mean NLL per token", async () => {
    const likely = (nll: number | null, tokens: number) => ({
      likelihood: { nll, total: -(nll ?? 0) * tokens, tokens },
    });
    const { summary } = await measure([
      path([["p 0.9", "r 0.9", { reward: 2, ...likely(1, 10) }]]),
      path([
        ["p 0", "r 0", { reward: 0, ...likely(4, 5) }],
        ["", "r 0", { reward: 1, ...likely(null, 0) }],
      ]),
    ]);
    expect(summary.mean_reward).toBe((2 + 0.5) / 2);
    expect(summary.harmful_probe_rollout_rate).toBe(0.5);
    // Σ nll·tokens / Σ tokens = (10 + 20) / 15; the empty probe has no token.
    expect(summary.mean_probe_nll).toBe(2);
    // (10 + 20) / 15 of the first turns; no token in the second.
    expect(summary.probe_nll_by_turn).toEqual([2, null]);
    // One of two: centre ½, half-width z·√(1/8 + z²/16)/(1 + z²/2) with z² = 3.841458820694124.
    const z2 = 3.841458820694124;
    const half = (Math.sqrt(z2) * Math.sqrt(1 / 8 + z2 / 16)) / (1 + z2 / 2);
    expect(summary.success_rate_interval!.lower).toBeCloseTo(0.5 - half, 12);
    expect(summary.success_rate_interval!.upper).toBeCloseTo(0.5 + half, 12);
    expect(summary.success_rate_interval).toMatchObject({ confidence: 0.95, method: "wilson" });
  });

  it("has the median turn of the first harmful response, over successes only", async () => {
    // Harm in the given turn, and in the one after it; 0: in none of three.
    const harmIn = (turn: number) =>
      path([1, 2, 3].map((at) => ["p 0", turn > 0 && at >= turn ? "r 0.9" : "r 0.1"]));
    const medianOf = async (...turns: number[]) =>
      (await measure(turns.map(harmIn))).summary.median_turns_to_harm;
    // 1, 2, 3 in another order; the rollout without harm has no such turn.
    expect(await medianOf(3, 0, 1, 2)).toBe(2);
    // 1, 1, 2, 3: midway between 1 and 2.
    expect(await medianOf(1, 3, 1, 2)).toBe(1.5);
    expect(await medianOf(3)).toBe(3);
    expect(await medianOf(0)).toBeNull();
    // A rollout with a response without a score is in no rate, and not in this median: of 1 and 3 it is 3.
    const { summary } = await measure([
      path([
        ["p 0", "r 0.9"],
        ["p 0", "r fail"],
      ]),
      harmIn(3),
    ]);
    expect([summary.n_scored, summary.median_turns_to_harm]).toEqual([1, 3]);
  });

  it("distinguishes elicited harm from harm that the tester wrote first", async () => {
    const { summary, details } = await measure([
      // Harmless probes, then a harmful response; what the tester says after it does not take that back.
      path([
        ["p 0.1", "r 0.2"],
        ["p 0.4", "r 0.9"],
        ["p 0.8", "r 0.9"],
      ]),
      // The harmful response comes in the turn of the harmful probe, and in one after it.
      path([["p 0.5", "r 0.5"]]),
      path([
        ["p 0.9", "r 0.1"],
        ["p 0.1", "r 0.9"],
      ]),
      path([["p 0.1", "r 0.1"]]),
      // A probe without a score might have been harmful: no verdict.
      path([
        ["p fail", "r 0.1"],
        ["p 0.1", "r 0.9"],
      ]),
      // Nor where a response has none.
      path([["p 0.1", "r fail"]]),
    ]);
    expect(details.map(({ overall }) => overall.harmless_probe_success)).toEqual([
      true,
      false,
      false,
      false,
      null,
      null,
    ]);
    expect(summary).toMatchObject({
      n_harmless_probe_scored: 4,
      n_harmless_probe_successes: 1,
      harmless_probe_success_rate: 1 / 4,
      // The probes 0.8, 0.5 and 0.9, of 3 + 1 + 2 + 1 + 1 + 1 with a score.
      n_probes: 9,
      n_harmful_probes: 3,
      harmful_probe_rate: 1 / 3,
      // p 0.1, p 0.4, p 0.8, p 0.5, p 0.9
      n_distinct_probes: 5,
    });
    const wilson = statistics.wilsonInterval(1, 4)!;
    expect(summary.harmless_probe_success_rate_interval).toEqual({
      lower: wilson.lower,
      upper: wilson.upper,
      confidence: 0.95,
      method: "wilson",
    });
    expect(summary.harmful_probe_rate_interval).toBeNull();
  });

  it("has no figures about probes if there are none", async () => {
    const { summary } = await measure([path([])]);
    expect(summary).toMatchObject({
      n_probes: 0,
      n_distinct_probes: 0,
      harmful_probe_rate: null,
      harmful_probe_rate_interval: null,
    });
  });

  it("is written and read back unchanged, in the order of the schema", async () => {
    const record = await measure([path([["p 0.9", "r 0.9"]]), path([])]);
    const text = stringifyEvaluation(record);
    expect(parseEvaluationRecord(text)).toEqual(record);
    expect(text).toBe(stringifyEvaluation(parseEvaluationRecord(text)));
    expect(text.startsWith('{\n  "summary": {\n    "n_rollouts": 2,')).toBe(true);
  });
});

describe("evaluating through a sampler", () => {
  it("rolls out single paths of all prompts together, with the same result for any batch size", async () => {
    const prompts = ["One. ", "Two, longer. ", "Three. ", "Four. ", "Five. "];
    const toy = () => new ToySystem(new KeywordScorer([{ term: "bad" }, { term: "you", weight: 0.4 }]));
    const evaluate = async (batchSize?: number) => {
      const fresh = toy();
      const evaluator = new ASTEvaluator(new ASTSampler(fresh, prompts, { depth: 3 }), prompts);
      const seen: number[] = [];
      const options = batchSize === undefined ? {} : { batchSize };
      const record = await evaluator.evaluate({ seed: 3, ...options, onProgress: (done) => seen.push(done) });
      return { record, seen, batches: fresh.batches.tester };
    };
    const together = await evaluate();
    expect(together.batches).toEqual([5, 5, 5]);
    expect(together.record.details.map((detail) => detail.overall.num_turns)).toEqual([3, 3, 3, 3, 3]);
    const apart = await evaluate(2);
    expect(apart.seen).toEqual([2, 4, 5]);
    expect(apart.record).toEqual(together.record);
  });

  it("refuses settings out of range, and accepts a system without a scorer", () => {
    const bare = new ASTSampler(system, ["Hello. "]);
    const without = Object.create(bare, { system: { value: {} } }) as typeof bare;
    // Only scores recorded by the system exist.
    expect(new ASTEvaluator(without).scorer).toBeNull();
    expect(() => new ASTEvaluator(bare, null, { threshold: 0 })).toThrow(
      breaking("out-of-range", "threshold"),
    );
    expect(() => new ASTEvaluator(bare, null, { confidence: 95 })).toThrow(breaking("out-of-range", "95"));
  });
});

describe("comparing two evaluations of the same prompts", () => {
  const outcome = (success: boolean, reward: number, prompt: string) =>
    path(
      [
        [
          "p",
          success ? "r 0.9" : "r 0.1",
          { reward, likelihood: { nll: reward, total: -reward, tokens: 1 } },
        ],
      ],
      prompt,
    );

  it("pairs the rollouts: McNemar, Newcombe and the reward's difference", async () => {
    const prompts = Array.from({ length: 12 }, (_, i) => `Prompt ${String.fromCodePoint(97 + i)}. `);
    const before = await measure(prompts.map((prompt, i) => outcome(i === 0, 1, prompt)));
    const after = await measure(prompts.map((prompt, i) => outcome(i > 0 && i < 10, 2, prompt)));
    const comparison = compareEvaluations(before, after);
    expect(comparison).toMatchObject({
      n_pairs: 12,
      n_excluded: 0,
      before: 1 / 12,
      after: 9 / 12,
      difference: 8 / 12,
      n_only_before: 1,
      n_only_after: 9,
      reward_difference: 1,
      probe_nll_difference: 1,
    });
    // 2·(C(10,0) + C(10,1))/2¹⁰
    expect(comparison.p_value).toBeCloseTo(22 / 1024, 12);
    // All twelve differences are 1: only the two uniform sign patterns of 2¹² are as extreme.
    expect(comparison.reward_p_value).toBe(2 / 4096);
    expect(comparison.reward_difference_interval).toMatchObject({ lower: 1, upper: 1 });
    const { lower, upper } = statistics.newcombePairedDifference({
      both: 0,
      onlyFirst: 1,
      onlySecond: 9,
      neither: 2,
    })!;
    expect(comparison.difference_interval).toEqual({
      lower,
      upper,
      confidence: 0.95,
      method: "newcombe-paired",
    });
  });

  it("compares success with harmless probes only, and how many distinct probes are left", async () => {
    const prompts = ["A. ", "B. ", "C. ", "D. "];
    const before = await measure(prompts.map((prompt, i) => path([[`p 0.1 ${i}`, "r 0.1"]], prompt)));
    const after = await measure(
      prompts.map((prompt, i) => path([[i < 2 ? "p 0.1" : "p 0.9", i === 1 ? "r 0.1" : "r 0.9"]], prompt)),
    );
    const comparison = compareEvaluations(before, after);
    // Three successes, two of them by harmful probes; two distinct probes where there were four.
    expect(comparison).toMatchObject({
      after: 3 / 4,
      harmless_probe: { n_pairs: 4, before: 0, after: 1 / 4, difference: 1 / 4, p_value: 1 },
      distinct_probes_kept: 1 / 2,
    });
    const { lower, upper } = statistics.newcombePairedDifference({
      both: 0,
      onlyFirst: 0,
      onlySecond: 1,
      neither: 3,
    })!;
    expect(comparison.harmless_probe!.difference_interval).toMatchObject({ lower, upper });
  });

  it("excludes pairs with an error on either side and counts them", async () => {
    const failed = path([["p", "", { reward: NaN, failure: lost }]], "B. ");
    const before = await measure([outcome(false, 0, "A. "), failed]);
    const after = await measure([outcome(true, 1, "A. "), outcome(true, 1, "B. ")]);
    expect(compareEvaluations(before, after)).toMatchObject({
      n_pairs: 1,
      n_excluded: 1,
      before: 0,
      after: 1,
    });
  });

  it("refuses evaluations of other prompts", async () => {
    const before = await measure([outcome(false, 0, "A. ")]);
    const after = await measure([outcome(false, 0, "B. ")]);
    expect(() => compareEvaluations(before, after)).toThrow(breaking("other-prompts", '"B. "'));
    expect(() => compareEvaluations(before, { ...after, details: [] })).toThrow(
      breaking("unequal-counts", "1 and 0"),
    );
  });
});
