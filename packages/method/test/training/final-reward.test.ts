import { expect, it } from "vitest";
import type { MetricsRecord } from "@astra-rl/records";
import { DPO } from "../../src/algorithm/preference/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTConfiguration, HFASTTrainer } from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { textEvaluator, type TextGraph } from "../support/texts.js";
import { LetterScorer } from "./support.js";

/** Three steps, each with an evaluation; the records of all. */
async function run(
  Kind: typeof ASTSampler,
): Promise<{ records: MetricsRecord[]; best: number | null; graphs: TextGraph[] }> {
  const system = new BigramSystem();
  const graphs: TextGraph[] = [];
  class Watched extends (Kind as typeof ASTSampler<string, string>) {
    override finalReward(graph: TextGraph): number {
      graphs.push(graph);
      return super.finalReward(graph);
    }
  }
  const sampler = new Watched(system, ["x", "y"], { width: 2, depth: 2 });
  const evaluator = textEvaluator(sampler, ["u", "v"], { scorer: new LetterScorer() });
  const records: MetricsRecord[] = [];
  const configuration = new HFASTConfiguration({ trainingSteps: 3, evaluateEvery: 1, learningRate: 0.1 });
  const trainer = new HFASTTrainer(configuration, sampler, new DPO(system) as never, {
    evaluator: evaluator as never,
    runDirectory: null,
    callbacks: [{ name: "watch", onStep: (record) => void records.push(record) }],
  });
  await trainer.train();
  const best = trainer.bestScore;
  trainer.dispose();
  system.dispose();
  return { records, best, graphs };
}

it("the best tester is the one with the highest mean final reward on the dev prompts", async () => {
  const { records, best, graphs } = await run(ASTSampler);
  expect(graphs).toHaveLength(6);
  const finals = graphs.map((graph) => graph.path().at(-1)!.reward);
  const means = [0, 1, 2].map((step) => (finals[2 * step]! + finals[2 * step + 1]!) / 2);
  expect(records.map((record) => record["evaluation/final_reward"])).toEqual(means);
  expect(best).toBe(Math.max(...means));
  expect(records.filter((record) => record["evaluation/best"]).at(-1)!["evaluation/final_reward"]).toBe(best);
});

it("a sampler's finalReward decides which tester is kept", async () => {
  let calls = 0;
  class Worse extends ASTSampler {
    override finalReward(): number {
      return 100 - calls++;
    }
  }
  const { records, best } = await run(Worse as typeof ASTSampler);
  expect(best).toBe(99.5);
  expect(records.map((record) => record["evaluation/best"])).toEqual([true, false, false]);
});
