import { expect, it } from "vitest";
import { liveTensors } from "@astra-rl/torch";
import { DPO } from "../../src/algorithm/preference/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { Trainer, TrainingConfiguration } from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";

// Alone in its file: uncollected garbage of other tests would be counted.
it("is constant over the steps and returns to its initial value", async () => {
  const before = liveTensors();
  const system = new BigramSystem();
  const counts: number[] = [];
  const trainer = new Trainer(
    new TrainingConfiguration({ trainingSteps: 12, numEpisodesPerExperience: 3, batchSize: 2 }),
    new ASTSampler(system, ["x", "y"], { width: 3, depth: 2 }),
    new DPO(system),
    { callbacks: [{ name: "watch", onStep: () => void counts.push(liveTensors()) }] },
  );
  await trainer.train();
  expect(new Set(counts.slice(1)).size).toBe(1);
  trainer.dispose();
  system.table.grad = null;
  system.dispose();
  expect(liveTensors()).toBe(before);
});
