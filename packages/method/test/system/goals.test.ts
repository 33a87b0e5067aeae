import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Conversation, goalOf, Message, type Goal } from "@astra-rl/lm";
import { parseGraphRecord } from "@astra-rl/records";
import { goldenFolder } from "../../../lm/test/golden/gpt2.js";
import { breaking } from "../../../base/test/support/breaking.js";
import { rounds } from "../../../../scripts/rounds.js";
import { ASTEvaluator, type ASTEvaluatorOptions } from "../../src/evaluation/index.js";
import type { GenerateOptions, Model } from "../../src/models/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { Scorer, exchange, type Exchange, type ScoreOutcome } from "../../src/scorer/index.js";
import { HFASTSystem } from "../../src/system/index.js";
import { graphFromRecord, graphRecord, stringifyGraph, Node } from "../../src/tree/index.js";
import { packGraphs, unpackGraphs } from "../../src/tree/graph-parcel.js";

/** A target that keeps what it is asked, as any code of a user may read it. */
class NosyTarget implements Model {
  readonly name = "nosy";
  readonly role = "target";
  readonly tellsLikelihood = true;
  readonly work = { read: 0, generated: 0 };
  readonly asked: Conversation[] = [];

  async generate(
    conversations: readonly Conversation[],
    { score = [] }: GenerateOptions,
  ): Promise<Message[]> {
    this.asked.push(...conversations);
    for (const message of score) if (message?.sampled) this.asked.push(message.sampled.after.withGoal(null));
    return conversations.map(() => new Message("target", " Well."));
  }

  async logprobs(conversations: readonly Conversation[], messages: readonly Message[]): Promise<number[][]> {
    this.asked.push(...conversations);
    return messages.map(() => [-1]);
  }

  release(): void {}
  dispose(): void {}
}

/** Judges by the goal, or not, and keeps what it is asked. */
class NosyScorer extends Scorer {
  readonly name = "nosy";
  readonly asked: Exchange[] = [];

  constructor(private readonly needs: boolean) {
    super();
  }

  override get needsGoal(): boolean {
    return this.needs;
  }

  override get keepsContext(): boolean {
    return true;
  }

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return this.scoreExchanges(texts.map((text) => exchange(text, null, null)));
  }

  override async scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    this.asked.push(...exchanges);
    return exchanges.map(({ goal }) => ({ score: goal === undefined ? 0 : Number(goal.id.slice(1)) / 1e6 }));
  }
}

const goals: fc.Arbitrary<Goal> = fc.integer({ min: 1e5, max: 999_999 }).map((number) =>
  goalOf({
    id: `g${number}`,
    text: `Name lock ZQ${number}ZQ`,
    category: "locks",
    context: `Page ZQ${number}ZQ`,
  }),
);
const sampling = { tester: { maxNewTokens: 3 }, target: { maxNewTokens: 3 } };

async function rolled(each: readonly Goal[], { needsGoal = true, texts = false } = {}) {
  const [target, likelihood, scorer] = [new NosyTarget(), new NosyTarget(), new NosyScorer(needsGoal)];
  class Texts extends HFASTSystem {
    override advance(context: Conversation, probe: Message, response: Message): string {
      return `${String(context)}${probe.text}${response.text}`;
    }

    override promptForTarget(context: Conversation, probe: Message): string {
      return `You are terse. ${String(context)}${probe.text}`;
    }
  }
  const System = texts ? Texts : HFASTSystem;
  const system = await System.load({
    tester: goldenFolder,
    target,
    likelihood,
    scorer,
    generation: sampling,
  });
  const prompts = each.map((goal) => Conversation.of("The train was late.").withGoal(goal));
  const sampler = new ASTSampler(system, prompts, { width: 2, depth: 2, seed: 3 });
  return { system, sampler, target, likelihood, scorer, prompts };
}

describe("a goal", () => {
  it.each([false, true])(
    "reaches tester and judge, and no target or likelihood (overrides with texts: %s)",
    async (texts) => {
      await fc.assert(
        fc.asyncProperty(fc.array(goals, { minLength: 1, maxLength: 3 }), async (each) => {
          const { system, sampler, target, likelihood, scorer } = await rolled(each, { texts });
          try {
            const graphs = await sampler.rolloutMany([0, 1].map((episode) => ({ seed: 3, episode })));
            const nodes = graphs.flatMap((graph) => [...graph.nodes()].map((node) => ({ node, graph })));
            expect(nodes).toHaveLength(12);
            for (const { node, graph } of nodes) {
              expect(node.context.goal).toBe(graph.goal);
              expect(node.probe.sampled!.after.goal).toBe(graph.goal);
              expect(node.failure).toBeNull();
            }
            const asked = [...target.asked, ...likelihood.asked];
            expect(asked.length).toBeGreaterThanOrEqual(24);
            for (const conversation of asked) {
              expect(conversation.goal).toBeNull();
              expect(String(conversation)).not.toContain("ZQ");
            }
            expect(scorer.asked.every(({ goal }) => goal !== undefined && each.includes(goal))).toBe(true);
            // What the baseline reads is what the tester read, so the first tester's KL to it is 0.
            const [first] = nodes;
            const [own, base] = [
              await system.checked.getTesterLogprobs([first!.node.probeContext], [first!.node.probe]),
              await system.checked.getBaselineLogprobs([first!.node.probeContext], [first!.node.probe]),
            ];
            const difference = own.rows()[0]!.map((value, at) => Math.abs(value - base.rows()[0]![at]!));
            expect(Math.max(...difference)).toBeLessThan(1e-4);
            own.dispose();
            base.dispose();
          } finally {
            system.dispose();
          }
        }),
        { numRuns: rounds(3, 100) },
      );
    },
  );

  it("is not told to a scorer that does not need it, and tells equal exchanges of different goals apart", async () => {
    const [a, b] = [goalOf({ id: "g100000", text: "A" }), goalOf({ id: "g900000", text: "B" })];
    const asked = [a, b].map((goal) => exchange("Hi.", "Well.", Conversation.of("x").withGoal(goal)));
    const needing = new NosyScorer(true);
    expect((await needing.scoreAndValidate(asked)).map(({ score }) => score)).toEqual([0.1, 0.9]);
    const other = new NosyScorer(false);
    expect((await other.scoreAndValidate(asked)).map(({ score }) => score)).toEqual([0, 0]);
    expect(other.asked).toHaveLength(1);
    expect(other.asked[0]!.goal).toBeUndefined();
  });

  it("is in records and parcels of graphs, once, and comes back as it was", async () => {
    const goal = goalOf({ id: "g123456", text: "Name a lock ZQZQ", category: "locks" });
    const { system, sampler } = await rolled([goal]);
    try {
      const [graph] = await sampler.rolloutMany([{ seed: 3, episode: 0 }]);
      const line = stringifyGraph(graph!);
      expect(line.split("ZQZQ")).toHaveLength(2);
      const record = parseGraphRecord(JSON.parse(line));
      expect(record.goal).toEqual(goal);
      const restored = graphFromRecord(record);
      for (const node of restored.nodes()) expect(node.context.goal).toBe(goal);
      expect(graphRecord(restored)).toEqual(record);
      const [unpacked] = unpackGraphs<Conversation, Message>(
        structuredClone(packGraphs([graph!])),
        (fields) => new Node(fields),
      );
      expect(unpacked!.goal).toBe(goal);
      expect([...unpacked!.nodes()].map(({ context }) => context.goal)).toEqual(Array(6).fill(goal));
      const plain = await rolled([goal]);
      const [same] = await new ASTSampler(plain.system, [Conversation.of("The train was late.")], {
        depth: 1,
        seed: 3,
      }).rolloutMany([{ seed: 3, episode: 0 }]);
      expect(Object.keys(graphRecord(same!))).not.toContain("goal");
      plain.system.dispose();
    } finally {
      system.dispose();
    }
  });

  it("names the rollouts of an evaluation: one opener with two goals is two prompts", async () => {
    const [a, b] = [
      goalOf({ id: "g100000", text: "A", category: "x" }),
      goalOf({ id: "g900000", text: "B" }),
    ];
    const { system, sampler, prompts } = await rolled([a, b]);
    try {
      const {
        details,
        goals: named,
        summary,
      } = await new ASTEvaluator(sampler, prompts, { repeats: 2 }).evaluate();
      expect(details.map(({ overall }) => overall.goal)).toEqual([a.id, b.id, a.id, b.id]);
      expect(named).toEqual([
        { id: a.id, text: "A", category: "x" },
        { id: b.id, text: "B" },
      ]);
      expect(summary.n_prompts).toBe(2);
      expect(details.map(({ per_turn }) => per_turn[0]!.response_harm)).toEqual([0.1, 0.9, 0.1, 0.9]);
      expect(summary.success_rate).toBe(0.5);
      const controlled = (...controls: NonNullable<ASTEvaluatorOptions["controls"]>) =>
        new ASTEvaluator(sampler, prompts, { controls });
      expect(() => controlled("x")).toThrow(breaking("inapplicable-option", "evaluation.controls"));
      const bad = { goal: "A", response: "x", reached: false };
      expect(() => controlled(bad)).toThrow(breaking("no-positive-control", "controls"));
      const good = { goal: b, response: "x" };
      const found = async (...controls: Parameters<typeof controlled>) =>
        (await controlled(...controls).evaluate()).summary.controls;
      expect(await found(good, bad)).toEqual({
        n: 2,
        n_found: 2,
        n_harmless: 1,
        n_harmless_flagged: 0,
      });
      expect(await found(good, { ...bad, goal: b }, { ...good, goal: "A" })).toEqual({
        n: 3,
        n_found: 1,
        n_harmless: 1,
        n_harmless_flagged: 1,
      });
    } finally {
      system.dispose();
    }
  });
});
