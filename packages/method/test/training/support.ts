import { readFileSync } from "node:fs";
import { join } from "node:path";
import { scope } from "@astra-rl/torch";
import { DPO } from "../../src/algorithm/preference/index.js";
import { Scorer, type ScoreOutcome } from "../../src/scorer/index.js";
import { ASTSampler } from "../../src/sampler/index.js";
import {
  HFASTConfiguration,
  HFASTTrainer,
  type HFASTConfigurationOptions,
  type HFASTTrainerOptions,
} from "../../src/training/index.js";
import { BigramSystem } from "../support/bigram-system.js";
import { textEvaluator } from "../support/texts.js";

/** Judges a text by the share of a's among three letters. */
export class LetterScorer extends Scorer {
  readonly name = "letters";
  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.resolve(
      texts.map((text) => ({ score: Math.min(1, Array.from(text).filter((c) => c === "a").length / 3) })),
    );
  }
}

/** Settings with which the bigram tester learns in about twenty steps. */
export const QUICK: HFASTConfigurationOptions = {
  learningRate: 0.1,
  batchSize: 8,
  trainingSteps: 12,
  numEpisodesPerExperience: 4,
  evaluateEvery: 5,
  seed: 0,
};

/** A bigram system with everything that training it needs. The caller disposes of the system and the trainer. */
export function assemble(
  configuration: HFASTConfigurationOptions = QUICK,
  options: HFASTTrainerOptions<string, string> = {},
  system = new BigramSystem(),
  algorithm = new DPO(system),
): { system: BigramSystem; sampler: ASTSampler<string, string>; trainer: HFASTTrainer<string, string> } {
  const sampler = new ASTSampler(system, ["x", "y", "z"], { width: 3, depth: 2 });
  const evaluator = textEvaluator(sampler, ["u", "v"], { scorer: new LetterScorer() });
  const settings = new HFASTConfiguration(configuration);
  const trainer = new HFASTTrainer(settings, sampler, algorithm, {
    evaluator,
    clock: () => 0,
    runDirectory: null,
    logger: { info: () => {}, warn: () => {} },
    ...options,
  });
  return { system, sampler, trainer: trainer as unknown as HFASTTrainer<string, string> };
}

export const weightsOf = (system: BigramSystem): number[] =>
  scope(() => Array.from(system.table.detach().toTypedArray() as ArrayLike<number>));

export const textOf = (...parts: string[]): string => readFileSync(join(...parts), "utf8");
