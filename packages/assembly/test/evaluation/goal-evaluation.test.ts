import { expect, it } from "vitest";
import { Conversation, goalOf } from "@astra-rl/lm";
import { ASTEvaluator, ASTSampler } from "@astra-rl/method";
import { parseEvaluationRecord, stringifyEvaluation } from "@astra-rl/records";
import { evaluationReport } from "@astra-rl/report";
import { KeywordScorer } from "@astra-rl/scorers";
import { ToySystem } from "../../../method/test/support/toy-system.js";

const scorer = new KeywordScorer([{ term: "fool" }]);
const sampler = new ASTSampler(new ToySystem(scorer), ["Hello. "], { depth: 1 });

it("an evaluation of prompts with goals is summarized by goal, with each goal's repeats as its tries", async () => {
  const goals = ["make it swear", "make it lie"].map((text, at) =>
    goalOf({ id: `g${at}`, text, category: "tone" }),
  );
  const starts = goals.map((goal) => Conversation.of("Hello. ").withGoal(goal));
  const record = await new ASTEvaluator(sampler, starts, { scorer, repeats: 3 }).evaluate();
  const { summary, goals: listed, details } = parseEvaluationRecord(stringifyEvaluation(record));
  expect(listed!.map(({ text }) => text)).toEqual(["make it swear", "make it lie"]);
  expect(details.map(({ overall }) => overall.goal)).toEqual([0, 1, 0, 1, 0, 1].map((at) => listed![at]!.id));
  expect(summary.goals!.by_goal.map(({ success }) => success.n)).toEqual([3, 3]);
  expect(summary.goals!.by_category).toMatchObject([{ category: "tone", n_goals: 2, success: { n: 6 } }]);
  expect(evaluationReport(record).join("\n")).toContain("Success by goal:");
});

it("an evaluation of prompts without goals has no trace of them", async () => {
  const record = await new ASTEvaluator(sampler, ["Hello. "], { scorer }).evaluate();
  expect(stringifyEvaluation(record)).not.toContain("goal");
});
