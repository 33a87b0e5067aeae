import { describe, expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { DPO, preferencePairs } from "../../src/algorithm/preference/index.js";
import { GRPO, RLOO } from "../../src/algorithm/policy-gradient/index.js";
import { ASTEvaluator } from "../../src/evaluation/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { Scorer, type ScoreOutcome } from "../../src/scorer/index.js";
import { backUp, Graph, Node, rewardCredit } from "../../src/tree/index.js";
import { ToySystem } from "../support/toy-system.js";

/** Scores a response by the number in it; "?" cannot be scored. */
class PartlyDown extends Scorer {
  readonly name = "partly-down";

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(
      texts.map((text): ScoreOutcome =>
        text.includes("?")
          ? { failure: { stage: "scorer", message: "judge is down", attempts: 3 } }
          : { score: Number(/[\d.]+/u.exec(text)?.[0] ?? 0) },
      ),
    );
  }
}

const scorer = new PartlyDown();
const system = new ToySystem(scorer);
const prompt = Conversation.of("Hi. ");

/** Siblings with these responses, as the system assesses them. */
async function siblings(responses: readonly string[], context = prompt): Promise<Node[]> {
  const probes = responses.map((_, at) => new Message("tester", `${"abc"[at]} `));
  const said = responses.map((text) => new Message("target", text));
  const assessments = await system.assess(
    responses.map(() => context),
    probes,
    said,
    responses.map((_, node) => ({ seed: 0, episode: 0, node })),
  );
  return assessments.map(
    (assessment, at) => new Node({ context, probe: probes[at]!, response: said[at]!, ...assessment }),
  );
}

describe("a response without a score", () => {
  it("has no reward, and the turn says why", async () => {
    const [harmless, unscored] = await siblings(["0.2 ", "? "]);
    expect(harmless!.reward).toBeGreaterThan(-Infinity);
    expect(unscored!.reward).toBeNaN();
    expect(unscored!.failure).toMatchObject({ stage: "scorer", message: "judge is down" });
    expect(unscored!.scores["response"]).toBeUndefined();
  });

  it("has no credit, and passes none to the turn before", async () => {
    const [parent] = await siblings(["0.2 "]);
    parent!.children = await siblings(["? ", "? "], prompt.append(parent!.probe, parent!.response));
    const graph = new Graph({ context: prompt, children: [parent!] });
    for (const credit of [rewardCredit(graph), backUp({ op: "mean" })(graph), backUp()(graph)]) {
      expect([...credit.keys()]).toEqual([parent]);
      expect(credit.get(parent!)).toBe(parent!.reward);
    }
  });

  it("is neither chosen nor rejected, and is not in the siblings' baseline", async () => {
    const three = await siblings(["0.9 ", "? ", "0.1 "]);
    const graph = new Graph({ context: prompt, children: three });
    const credit = rewardCredit(graph);
    for (const pairs of ["all", "best-worst"] as const) {
      expect(preferencePairs(three, credit, { pairs })).toEqual([{ chosen: three[0], rejected: three[2] }]);
    }
    for (const algorithm of [new RLOO(system), new GRPO(system)]) {
      const [branch] = algorithm.flatten(graph, credit);
      expect(branch!.turns.map(({ node }) => node)).toEqual([three[0], three[2]]);
      expect(branch!.turns.map((turn) => turn.credit)).toEqual([three[0]!.reward, three[2]!.reward]);
    }
  });

  it("leaves a single sibling without comparison", async () => {
    const graph = new Graph({ context: prompt, children: await siblings(["0.9 ", "? "]) });
    const credit = rewardCredit(graph);
    expect(new DPO(system).flatten(graph, credit)).toEqual([]);
    expect(new RLOO(system).flatten(graph, credit)).toEqual([]);
  });

  it("is an error of the evaluation, not a harmless rollout", async () => {
    const graphs = await Promise.all(
      ["0.9 ", "? ", "0.1 "].map(async (response, at) => {
        const context = Conversation.of(`Hi ${at}. `);
        return new Graph({ context, children: await siblings([response], context) });
      }),
    );
    const evaluator = new ASTEvaluator(new ASTSampler(system, ["Hi. "], { depth: 1 }), null, { scorer });
    const { summary } = await evaluator.aggregateMetrics(await evaluator.computeMetricsMany(graphs));
    expect(summary).toMatchObject({
      n_rollouts: 3,
      n_scored: 2,
      n_errors: 1,
      n_successes: 1,
      n_failed_turns: 1,
      success_rate: 0.5,
      success_rate_bounds: { lower: 1 / 3, upper: 2 / 3 },
    });
  });
});
