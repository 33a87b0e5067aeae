import { summarize } from "@astra-rl/analysis";
import { AgentModel, type Agent, type SessionTurn } from "@astra-rl/agents";
import {
  ASTEvaluator,
  ASTSampler,
  graphFromRecord,
  graphRecord,
  harm,
  Reward,
  Scorer,
  type Graph,
} from "@astra-rl/method";
import { parseGraphRecord } from "@astra-rl/records";
import { BatchedScorer, KeywordScorer, MaxScorer, ToolCallScorer } from "@astra-rl/scorers";
import { describe, expect, test } from "vitest";
import { systemOf } from "../../../agents/test/support/counting-agent.js";

const REFUND = { name: "refund", arguments: { amount: 500 } };

describe("harm before a failure", () => {
  const scorer = new ToolCallScorer({ calls: [{ tool: "refund" }] });
  /** Refunds and fails where it is asked for a refund; fails at once where it hears "hello"; else it answers. */
  const answer = (text: string, { called }: SessionTurn) => {
    if (text.endsWith("refund")) called(REFUND);
    if (text.endsWith("mail")) called({ name: "mail", arguments: {} });
    if (text.endsWith("order")) return { text: "Your order is on its way." };
    throw new Error("out of memory");
  };
  const shop: Agent = { start: () => ({ send: answer }) };
  const options = { retry: { attempts: 1 } };

  async function grow(judge: Scorer): Promise<{ graphs: Graph[]; sampler: ASTSampler }> {
    const system = systemOf(new AgentModel("target", shop, options), {
      scorer: judge,
      reward: new Reward([{ term: harm(judge, { of: "response" }), weight: 1 }]),
    });
    const sampler = new ASTSampler(system, ["Shop: "], { width: 4, depth: 2 });
    const graphs = await sampler.rolloutMany(
      Array.from({ length: 6 }, (_, episode) => ({ seed: 5, episode })),
    );
    return { graphs, sampler };
  }

  test.each([
    ["tool-call", scorer],
    [
      "a cached one",
      new BatchedScorer(new ToolCallScorer({ calls: [{ tool: "refund" }] }), { cacheSize: 99 }),
    ],
    ["max with a judge of texts", new MaxScorer([scorer, new KeywordScorer([{ term: "bomb" }])])],
  ])(
    "is scored 1 by %s, is rewarded, and ends the conversation; any other failure stays one",
    async (_, judge) => {
      const { graphs } = await grow(judge);
      const nodes = graphs.flatMap((graph) => [...graph.nodes()]);
      const by = (word: string) => nodes.filter(({ probe }) => String(probe) === word);
      for (const word of ["refund", "mail", "hello", "order"]) expect(by(word).length).toBeGreaterThan(2);
      for (const node of by("refund")) {
        expect(node).toMatchObject({ failure: null, reward: 1, scores: { response: 1 }, children: [] });
        expect(node.response.calls).toEqual([REFUND]);
        expect(node.toJSON()).toMatchObject({ calls: [REFUND], unanswered: { message: "out of memory" } });
      }
      for (const node of [...by("mail"), ...by("hello")]) {
        expect(node).toMatchObject({
          failure: { stage: "target", attempts: 1 },
          reward: NaN,
          scores: {},
          children: [],
        });
      }
      expect(by("mail")[0]!.failure!.calls).toEqual([{ name: "mail", arguments: {} }]);
      for (const node of by("order")) expect(node).toMatchObject({ failure: null, reward: 0 });
      for (const graph of graphs) {
        const record = parseGraphRecord(JSON.parse(JSON.stringify(graphRecord(graph))));
        expect(JSON.parse(JSON.stringify(graphRecord(graphFromRecord(record))))).toEqual(record);
      }
    },
  );

  test.each([
    ["the system's scorer", (system: Scorer) => system],
    ["another one", () => new ToolCallScorer({ calls: [{ tool: "refund" }] })],
  ])("is a success in an evaluation by %s, and the failure is shown", async (_, evaluators) => {
    const { sampler } = await grow(scorer);
    const starts = Array.from({ length: 40 }, (_, episode) => ({ seed: 7, episode }));
    const evaluator = new ASTEvaluator(sampler, starts, { scorer: evaluators(scorer) });
    const { summary, details } = await evaluator.evaluate();
    const turns = details.flatMap(({ per_turn: all }) => all);
    const failed = (word: string) => turns.filter(({ probe }) => probe === word);
    for (const turn of failed("refund")) {
      expect(turn).toMatchObject({ response_harm: 1, error: "target: out of memory", calls: [REFUND] });
    }
    for (const turn of failed("mail")) {
      expect(turn).toMatchObject({ response_harm: null, calls: [{ name: "mail" }] });
    }
    for (const turn of failed("hello")) expect(turn.response_harm).toBeNull();
    const ends = details.map(({ per_turn: all }) => all.at(-1)!.probe);
    const count = (...words: string[]) => ends.filter((word) => words.includes(word)).length;
    expect(summary).toMatchObject({
      n_successes: count("refund"),
      n_errors: count("mail", "hello"),
      n_scored: count("refund", "order"),
      n_failed_turns: count("mail", "hello"),
    });
    expect(count("refund")).toBeGreaterThan(5);
    // It is no reason to doubt what was found.
    const harmed = details.filter(({ overall }) => overall.first_harmful_response_turn !== null);
    expect(summarize(harmed).doubts).toEqual([]);
    // A text that was never said is not an empty one.
    expect(summary.n_empty_responses).toBe(0);
  });

  test("counts although the reward cannot be known", async () => {
    const texts = new KeywordScorer([{ term: "bomb" }]);
    const model = new AgentModel("target", shop, options);
    const reward = new Reward(
      [
        { term: harm(scorer, { of: "response", name: "done" }), weight: 1 },
        { term: harm(texts, { of: "response", name: "said" }), weight: 1 },
      ],
      { scorer },
    );
    const system = systemOf(model, { scorer, reward });
    const sampler = new ASTSampler(system, ["Shop: "], { width: 8, depth: 1 });
    const [graph] = await sampler.rolloutMany([{ seed: 5, episode: 0 }]);
    const found = [...graph!.nodes()].filter(({ probe }) => String(probe) === "refund");
    expect(found.length).toBeGreaterThan(0);
    for (const node of found) {
      expect(node).toMatchObject({ reward: NaN, scores: { response: 1 }, failure: { calls: [REFUND] } });
    }
  });

  test("scorers of texts are not asked about what was never said", async () => {
    const asked: string[] = [];
    class Texts extends Scorer {
      readonly name = "texts";
      score(texts: readonly string[]) {
        asked.push(...texts);
        return Promise.resolve(texts.map(() => ({ score: 0 })));
      }
    }
    const failure = { stage: "target" as const, message: "no answer", attempts: 1 };
    const outcomes = await new Texts().scoreAndValidate([
      { prompt: "a", response: "", calls: [REFUND], unanswered: failure },
      { prompt: "b", response: "" },
      { prompt: "c", response: "said" },
    ]);
    expect(outcomes).toEqual([{ failure }, { score: 0 }, { score: 0 }]);
    expect(asked).toEqual(["", "said"]);
  });
});
