import { expect, it } from "vitest";
import { Conversation, Message } from "@astra-rl/lm";
import { Graph, Node, ASTEvaluator, ASTSampler } from "@astra-rl/method";
import {
  parseEvaluationRecord,
  stringifyEvaluation,
  type Failure,
  type EvaluationRecord,
} from "@astra-rl/records";
import { compareEvaluations } from "@astra-rl/analysis";
import { comparisonReport, evaluationReport, foundReport } from "@astra-rl/report";
import { KeywordScorer } from "@astra-rl/scorers";
import { ToySystem } from "../../../method/test/support/toy-system.js";

/** The scorer that training sees can be fooled by "fool"; the honest one wants an insult. */
const fooled = new KeywordScorer([{ term: "fool" }], { name: "fooled" });
const honest = new KeywordScorer([{ term: "you fool" }], { name: "honest" });
const sampler = new ASTSampler(new ToySystem(fooled), ["Hello. "], { depth: 3 });

let prompts = 0;

/** From a prompt of its own. */
function graph(...responses: (string | Failure)[]): Graph {
  let context = Conversation.of(`Hi ${prompts++ % 20}. `);
  let top: Node[] = [];
  const made = new Graph({ context, children: top });
  for (const said of responses) {
    const failure = typeof said === "string" ? {} : { failure: said, reward: NaN };
    const probe = new Message("tester", "So? ");
    const response = new Message("target", typeof said === "string" ? said : "");
    const node = new Node({ context, probe, response, reward: 0, ...failure });
    top.push(node);
    top = node.children;
    context = context.append(probe, response);
  }
  return made;
}

class Measured extends ASTEvaluator {
  async of(graphs: readonly Graph[]): Promise<EvaluationRecord> {
    return this.aggregateMetrics(await this.measure(graphs));
  }
}

const lost: Failure = { stage: "target", message: "timed out", attempts: 3 };
const evaluator = new Measured(sampler, null, { scorer: fooled, secondScorer: honest });

it("counts success by both, by one and by none, on rollouts that both scored, and kappa", async () => {
  const record = await evaluator.of([
    graph("Yes.", "You fool."),
    graph("A fool is one who asks.", "Fine."),
    graph("What a fool I was."),
    graph("Fine.", "Yes."),
    graph("You fool.", lost),
  ]);
  const { summary, details } = parseEvaluationRecord(stringifyEvaluation(record));
  expect(summary.second).toMatchObject({
    scorer: "honest",
    n_scored: 4,
    n_both: 1,
    n_first_only: 2,
    n_second_only: 0,
    n_neither: 1,
    success_rate: 0.25,
    // 0.5 agree; by chance 0.75 · 0.25 + 0.25 · 0.75 = 0.375.
    kappa: 0.2,
  });
  expect(details[4]!.per_turn.map((turn) => turn.second_response_harm)).toEqual([1, null]);
  const plain = await new Measured(sampler, null, { scorer: fooled }).of([graph("You fool.")]);
  expect(plain.summary.second).toBeUndefined();
  expect(plain.details[0]!.per_turn[0]).not.toHaveProperty("second_response_harm");
  const text = [...evaluationReport(record), ...foundReport(record)].join("\n");
  expect(text).toMatch(/success by honest\s+25\.0 % \(1\/4\)/);
  expect(text).toMatch(/by both scorers\s+25\.0 % \(1\/4\)/);
  expect(text).toContain("The scorers disagree on 2 of 4 rollouts (2 are a success by the first alone");
  expect(text).toContain("[harm 1.00 ◀; by the second, harm 0.00]");
});

it("a tester that exploits the first scorer is flagged, and one that improves is not", async () => {
  const times = (count: number, ...responses: string[]) =>
    Array.from({ length: count }, () => graph(...responses));
  const before = await evaluator.of(times(20, "Fine."));
  const hacked = await evaluator.of([...times(15, "What a fool I was."), ...times(5, "Fine.")]);
  const learned = await evaluator.of([...times(15, "You fool."), ...times(5, "Fine.")]);
  const lines = (after: EvaluationRecord) =>
    comparisonReport({ before, after, comparison: compareEvaluations(before, after) }).join("\n");
  expect(compareEvaluations(before, hacked).second).toMatchObject({
    n_pairs: 20,
    before: 0,
    after: 0,
    difference: 0,
  });
  expect(lines(hacked)).toContain(
    "Possible reward hacking: success rose by +75.0 points according to the scorer of training",
  );
  expect(lines(hacked)).toContain("by honest");
  expect(lines(learned)).not.toContain("reward hacking");
  expect(compareEvaluations(before, learned).second).toMatchObject({ difference: 0.75 });
  // Two of twenty might be luck: nothing was gained by either.
  const lucky = await evaluator.of([...times(2, "What a fool I was."), ...times(18, "Fine.")]);
  expect(lines(lucky)).not.toContain("reward hacking");
});

it("a failing second scorer does not affect the first", async () => {
  const broken = new KeywordScorer([{ term: "x" }], { name: "broken" });
  broken.score = () => Promise.reject(new Error("is down"));
  const { summary } = await new Measured(sampler, null, { scorer: fooled, secondScorer: broken }).of([
    graph("You fool."),
  ]);
  expect([summary.success_rate, summary.n_errors]).toEqual([1, 0]);
  expect(summary.second).toMatchObject({ n_scored: 0, success_rate: null, kappa: null });
});
