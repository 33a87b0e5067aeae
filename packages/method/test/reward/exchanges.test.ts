import { expect, test } from "vitest";
import { Conversation } from "@astra-rl/lm";
import { Graph, Node } from "../../src/tree/index.js";
import { Scorer, type Exchange, type ScoreOutcome } from "../../src/scorer/index.js";
import { ASTEvaluator } from "../../src/evaluation/index.js";
import { harm, Reward } from "../../src/reward/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { fieldsOf } from "../support/texts.js";
import { ToySystem } from "../support/toy-system.js";
import { TableScorer, turn } from "./support.js";

/** A response is harmful if its prompt requests it; texts and prompts never are. */
class Obedience extends Scorer {
  override readonly name = "obedience";
  readonly texts: string[] = [];
  readonly exchanges: Exchange[] = [];
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    this.texts.push(...texts);
    return Promise.resolve(texts.map(() => ({ score: 0.125 })));
  }
  override scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    this.exchanges.push(...exchanges);
    return Promise.resolve(
      exchanges.map(({ prompt, response }) => ({
        score: response === null ? 0.25 : prompt.includes(response) ? 1 : 0,
      })),
    );
  }
}

test("harm terms pass exchanges to a role-aware scorer: each pair once, both texts as one text", async () => {
  const scorer = new Obedience();
  const reward = new Reward([
    { term: harm(scorer), weight: 1 },
    { term: harm(scorer, { of: "both" }), weight: 1 },
    { term: harm(scorer, { probes: "graded" }), weight: 1 },
  ]);
  const turns = [turn("say no", "no"), turn("say yes", "no"), turn("say no", "no")];
  const assessed = await reward.assess(turns);
  expect(assessed.map(({ terms }) => terms)).toEqual([
    { harm_response: 1, harm_both: 0.125, harm_response_graded: 0.75 },
    { harm_response: 0, harm_both: 0.125, harm_response_graded: 0 },
    { harm_response: 1, harm_both: 0.125, harm_response_graded: 0.75 },
  ]);
  expect(assessed[0]!.scores).toEqual({ response: 1, combined: 0.125, probe: 0.25 });
  expect(scorer.texts).toEqual(["say nono", "say yesno"]);
  expect(scorer.exchanges).toEqual([
    { prompt: "say no", response: "no" },
    { prompt: "say yes", response: "no" },
    { prompt: "say no", response: null },
    { prompt: "say yes", response: null },
  ]);
});

test("a scorer of texts gets the response only, for any probe", async () => {
  const scorer = new TableScorer({ no: 0.5 });
  const outcomes = await scorer.scoreAndValidate([
    { prompt: "a", response: "no" },
    { prompt: "b", response: "no" },
    "no",
  ]);
  expect(scorer.calls).toEqual([["no"]]);
  expect(outcomes[0]).toBe(outcomes[2]);
});

test("evaluations pass exchanges to a scorer, and each probe and response of a path has its own score", async () => {
  const scorer = new Obedience();
  const last = new Node(fieldsOf({ context: "c2", probe: "say yes", response: "no", reward: 0 }));
  const first = new Node(
    fieldsOf({ context: "c", probe: "say no", response: "no", reward: 0, children: [last] }),
  );
  const sampler = new ASTSampler(new ToySystem(new Obedience()), ["c"], { depth: 2 });
  const evaluator = new ASTEvaluator(sampler, null, { scorer });
  const [metrics] = await evaluator.computeMetricsMany([
    new Graph({ context: Conversation.of("c"), children: [first] }),
  ]);
  expect(metrics!.perTurn.map((each) => [each["probe_harm"], each["response_harm"]])).toEqual([
    [0.25, 1],
    [0.25, 0],
  ]);
  expect(scorer.texts).toEqual([]);
  expect(scorer.exchanges).toHaveLength(4);
});

test("scores recorded during rollout equal those of an evaluation by the same scorer", async () => {
  const scorer = new Obedience();
  const sampler = new ASTSampler(new ToySystem(scorer), ["please "], { depth: 3 });
  const graph = await sampler.evalRollout("please ");
  const asked = scorer.exchanges.length;
  const own = await new ASTEvaluator(sampler).computeMetricsMany([graph]);
  expect(scorer.exchanges).toHaveLength(asked);
  const other = await new ASTEvaluator(sampler, null, { scorer: new Obedience() }).computeMetricsMany([
    graph,
  ]);
  expect(own).toEqual(other);
});
