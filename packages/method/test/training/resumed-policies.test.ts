import { describe, expect, it } from "vitest";
import { GRPO, PPO, REINFORCE } from "../../src/algorithm/policy-gradient/index.js";
import { ORPO } from "../../src/algorithm/preference/index.js";
import type { TextAlgorithm } from "../support/texts.js";
import { ValuedBigram } from "../support/valued-bigram.js";
import { assemble, QUICK, textOf } from "./support.js";
import { temporaryFolder } from "./temporary-folder.js";

type Maker = (system: ValuedBigram) => TextAlgorithm;

/** Trains to the given step, and returns the metrics and all weights. */
async function train(folder: string, make: Maker, steps: number, resume: boolean) {
  const system = new ValuedBigram();
  const controller = new AbortController();
  const { trainer } = assemble(
    { ...QUICK, evaluateEvery: 0, checkpointEvery: 1 },
    {
      runDirectory: folder,
      resume,
      signal: controller.signal,
      callbacks: [
        {
          name: "watch",
          onStep: ({ step }) => {
            if (step === steps) controller.abort();
          },
        },
      ],
    },
    system,
    make(system) as never,
  );
  await trainer.train();
  const weights = [system.table, system.critic].flatMap((parameter) =>
    Array.from(parameter.detach().toTypedArray() as Float32Array),
  );
  trainer.dispose();
  system.dispose();
  return { weights, metrics: textOf(folder, "metrics.jsonl") };
}

describe("a resumed run equals an uninterrupted one", () => {
  it.each([
    [
      "PPO with a moving KL coefficient and a rate of values",
      (system) =>
        new PPO(system, {
          klCoefficient: 0.05,
          klTarget: 0.5,
          valueLearningRate: 0.3,
          epochs: 2,
          targetKL: 0.05,
        }),
      "kl/coefficient",
    ],
    ["PPO whose updates exceed targetKL", (system) => new PPO(system, { targetKL: 1e-4 }), "learning_rate"],
    ["PPO with its defaults", (system) => new PPO(system), "kl/loss"],
    [
      "REINFORCE with a running mean",
      (system) => new REINFORCE(system, { baseline: "running" }),
      "advantage/mean",
    ],
    ["GRPO", (system) => new GRPO(system, { epochs: 2 }), "policy/kl_old"],
    ["ORPO", (system) => new ORPO(system), "preference/nll"],
  ] as [string, Maker, string][])("%s", async (_, make, key) => {
    const [whole, parts] = [temporaryFolder(), temporaryFolder()];
    const expected = await train(whole, make, QUICK.trainingSteps!, false);
    await train(parts, make, 3, false);
    await train(parts, make, 7, true);
    expect(await train(parts, make, QUICK.trainingSteps!, true)).toEqual(expected);
    const values = expected.metrics.split("\n").flatMap((line) => (line === "" ? [] : JSON.parse(line)[key]));
    expect(new Set(values).size).toBeGreaterThan(5);
  });
});
