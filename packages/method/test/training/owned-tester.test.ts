import { existsSync } from "node:fs";
import { join } from "node:path";
import { keep, scope, zeros, type Tensor } from "@astra-rl/torch";
import { expect, it } from "vitest";
import type { Conversation, Message } from "@astra-rl/lm";
import { KeywordScorer } from "@astra-rl/scorers";
import { DPO } from "../../src/algorithm/preference/index.js";
import { TokenTable } from "../../src/tree/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import { HFASTConfiguration, HFASTTrainer } from "../../src/training/index.js";
import { ToySystem } from "../support/toy-system.js";
import { temporaryFolder } from "./temporary-folder.js";

/** An `ASTSystem` without a tester among its parts: it owns one number, which shifts every log-probability. */
class Owning extends ToySystem {
  readonly shift: Tensor = keep(zeros([1])).requiresGrad_();

  override async getTesterLogprobs(
    contexts: readonly Conversation[],
    probes: readonly Message[],
  ): Promise<TokenTable> {
    const { values, lengths } = await super.getTesterLogprobs(contexts, probes);
    const isLong = probes.map((probe) => (probe.text.length > 4 ? [1] : [0.5]));
    const weights = TokenTable.ofRows(isLong).values;
    return new TokenTable(
      scope(() =>
        values
          .detach()
          .sub(this.shift.square().add(1e-3).mul(weights))
          .mul(values.detach().ne(0).to("float32")),
      ),
      lengths,
    );
  }

  override parameters(): Iterable<Tensor> {
    return [this.shift];
  }

  override dispose(): void {
    this.shift.dispose();
  }
}

const scorer = new KeywordScorer([{ term: "bad" }, { term: "why", weight: 0.3 }]);

async function run(trainingSteps: number, runDirectory: string, resume = false) {
  const system = new Owning(scorer);
  const sampler = new ASTSampler(system, ["Hello. "], { width: 4, depth: 2 });
  const configuration = new HFASTConfiguration({
    trainingSteps,
    learningRate: 0.1,
    weightDecay: 0.5,
    evaluateEvery: 0,
    checkpointEvery: 1,
  });
  scope(() => void system.shift.detach().add_(1));
  const trainer = new HFASTTrainer(configuration, sampler, new DPO(system), { runDirectory, resume });
  await trainer.train();
  trainer.dispose();
  const shift = system.shift.item();
  system.dispose();
  return shift;
}

it("a run of an ASTSystem that owns its tester is saved by parameters(), and resumed exactly", async () => {
  const folder = temporaryFolder();
  const whole = await run(3, join(folder, "whole"));
  expect(whole).not.toBe(1);
  await run(1, join(folder, "parts"));
  const saved = join(folder, "parts/checkpoints/last/state/parameters.safetensors");
  expect(existsSync(saved)).toBe(true);
  expect(await run(3, join(folder, "parts"), true)).toBe(whole);
});
