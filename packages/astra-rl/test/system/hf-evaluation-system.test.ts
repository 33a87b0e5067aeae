import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { ASTSampler } from "../../src/sampler/index.js";
import { KeywordScorer } from "../../src/scorer/keyword-scorer.js";
import { probes, talks } from "../support/values.js";
import { HFASTSystem, HFEvaluationSystem } from "../../src/system/index.js";
import { localTarget, localTester } from "../support/local-target.js";

const GPT2 = fileURLToPath(new URL("../../../lm/test/golden/gpt2", import.meta.url));
const PROMPTS = ["Hello there. ", "How are you? ", "I like 👋 tea. ", "日本 ", ""];

it("rolls out what the training system rolls out, with one set of weights", async () => {
  const options = {
    tester: GPT2,
    target: GPT2,
    scorer: new KeywordScorer(["a", "the", "e"].map((term) => ({ pattern: term, weight: 0.3 }))),
    inferenceDtype: "float32",
    generation: { tester: { maxNewTokens: 6 }, target: { maxNewTokens: 5 } },
    log: () => {},
  } as const;
  const training = await HFASTSystem.load(options);
  const evaluation = await HFEvaluationSystem.load(options);
  expect(localTester(evaluation).model).toBe(localTarget(evaluation).model);
  const starts = [...PROMPTS, 3];
  const [a, b] = [
    await new ASTSampler(training, PROMPTS).evalRolloutMany(starts, { seed: 2 }),
    await new ASTSampler(evaluation, PROMPTS).evalRolloutMany(starts, { seed: 2 }),
  ];
  expect(JSON.stringify(b)).toBe(JSON.stringify(a));
  expect([...evaluation.parameters()]).toEqual([]);
  await expect(evaluation.getBaselineLogprobs(talks("a"), probes("b"))).rejects.toThrow(/no baseline/u);
  await expect(evaluation.getTesterLogprobsAndValidate(talks("a"), probes("b"))).rejects.toThrow(
    /must carry a gradient/u,
  );
  training.dispose();
  evaluation.dispose();
});
