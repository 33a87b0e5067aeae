import type { HubOptions } from "@astra-rl/lm";
import { DPO, IPO } from "../algorithm/index.js";
import type { Configuration } from "../configuration/index.js";
import type { Algorithm } from "../core/index.js";
import { ASTEvaluator } from "../evaluation/index.js";
import { ASTSampler } from "../sampler/index.js";
import { HFASTSystem } from "../system/index.js";
import { HFASTConfiguration, HFASTTrainer, type HFASTTrainerOptions } from "../training/index.js";
import { modelSource } from "./model-source.js";
import { loadPrompts } from "./prompts.js";
import { assembleScorer } from "./scorer.js";

/**
 * Loads the models and the scorer of a configuration.
 *
 * @param hub how models of the hub are fetched, and who is told of it
 * @returns a system that the caller disposes of
 * @throws UsageError for a model or a scorer that cannot be loaded
 */
export async function assembleSystem(
  { models, generation, reward, scorer }: Configuration,
  hub: HubOptions = {},
): Promise<HFASTSystem> {
  const { tester, target, baseline } = models;
  return HFASTSystem.load({
    tester: modelSource(tester),
    target: modelSource(target),
    ...(baseline === undefined ? {} : { baseline: modelSource(baseline) }),
    hub,
    scorer: await assembleScorer(scorer),
    device: models.device,
    inferenceDtype: models.dtype,
    gradientCheckpointing: models.gradientCheckpointing,
    generation,
    reward,
  });
}

/** @param prompts the training prompts */
export function assembleSampler(
  configuration: Configuration,
  system: HFASTSystem,
  prompts: readonly string[],
): ASTSampler {
  const { sampler, seed } = configuration;
  return new ASTSampler(system, prompts, { ...sampler, seed });
}

export function assembleAlgorithm({ algorithm }: Configuration, system: HFASTSystem): DPO | IPO {
  const { name, ...options } = algorithm;
  return name === "dpo" ? new DPO(system, options) : new IPO(system, options);
}

/** Single-path rollouts from the given prompts, with the evaluation's own depth and threshold. */
export function assembleEvaluator(
  { sampler, evaluation, seed }: Configuration,
  system: HFASTSystem,
  prompts: readonly string[],
): ASTEvaluator {
  const depth = evaluation.depth ?? sampler.depth;
  return new ASTEvaluator(new ASTSampler(system, prompts, { width: 1, depth, seed }), prompts, {
    threshold: evaluation.threshold,
  });
}

/** The whole training of a configuration, ready to start. */
export async function assembleTrainer(
  configuration: Configuration,
  system: HFASTSystem,
  options: Omit<HFASTTrainerOptions, "evaluator">,
): Promise<HFASTTrainer> {
  const { training, seed } = configuration;
  const sampler = assembleSampler(configuration, system, await loadPrompts(configuration, "train"));
  const algorithm = assembleAlgorithm(configuration, system);
  const evaluates = training.evaluateEvery > 0;
  return new HFASTTrainer(new HFASTConfiguration({ ...training, seed }), sampler, algorithm as Algorithm, {
    ...options,
    ...(evaluates
      ? { evaluator: assembleEvaluator(configuration, system, await loadPrompts(configuration, "dev")) }
      : {}),
  });
}
