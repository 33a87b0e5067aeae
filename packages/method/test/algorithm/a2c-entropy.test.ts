import { UsageError } from "@astra-rl/base";
import type { Tensor } from "@astra-rl/torch";
import { afterAll, expect, it } from "vitest";
import { KeywordScorer } from "@astra-rl/scorers";
import { A2C, PPO } from "../../src/algorithm/policy-gradient/index.js";
import type { TokenTable } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { Harness, Trainer, TrainingConfiguration } from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { table } from "../support/table.js";
import { ToySystem } from "../support/toy-system.js";
import { ValuedBigram } from "../support/valued-bigram.js";

/** Provides values, and no entropy. */
class ValuesOnly extends BigramSystem {
  async value(_: readonly string[], continuations: readonly string[]): Promise<TokenTable> {
    return table(
      continuations.map((text) => Array.from(text, () => 0)),
      true,
    );
  }
}

const valued = new ValuedBigram();
const values = new ValuesOnly();
afterAll(() => {
  valued.dispose();
  values.dispose();
});

it("A2C has no entropy bonus by default, so that its defaults do not require entropy", () => {
  for (const system of [valued, values]) {
    expect(new A2C(system).options.entropyCoefficient).toBe(0);
    expect(new A2C(system, { entropyCoefficient: undefined } as never).options.entropyCoefficient).toBe(0);
  }
});

it("its defaults train a system without entropy", async () => {
  const sampler = new ASTSampler(values, ["x"], { width: 2, depth: 2 });
  const configuration = new TrainingConfiguration({ trainingSteps: 1, numEpisodesPerExperience: 2 });
  const trainer = new Trainer(configuration, sampler, new A2C(values));
  await trainer.train();
  expect(trainer.step).toBe(1);
  trainer.dispose();
});

it.each([
  ["A2C", () => new A2C(values, { entropyCoefficient: 0.1 })],
  ["PPO", () => new PPO(values, { entropyCoefficient: 0.1, klCoefficient: 0 })],
])("%s: a configured bonus is refused at assembly, before any rollout", (name, make) => {
  const sampler = new ASTSampler(values, ["x"], { width: 2, depth: 2 });
  const assemble = () => new Harness(sampler, make());
  expect(assemble).toThrow(UsageError);
  expect(assemble).toThrow(
    `${name} needs the entropy of the tester, but ValuesOnly cannot compute it; set entropyCoefficient to 0, or give`,
  );
  expect(
    () => new Harness(new ASTSampler(valued, ["x"]), new A2C(valued, { entropyCoefficient: 0.1 })),
  ).not.toThrow();
});

it("a text system that overrides its tester's log-probabilities has no entropy", () => {
  class Own extends ToySystem {
    override parameters(): Iterable<Tensor> {
      return [];
    }
  }
  const own = new Own(new KeywordScorer([{ term: "bad" }]));
  expect(own.missingCapability("entropy")).toMatch(/cannot compute it/u);
});
