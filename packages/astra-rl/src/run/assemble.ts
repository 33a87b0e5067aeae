import type { HubOptions } from "@astra-rl/lm";
import { DPO, IPO } from "../algorithm/index.js";
import type { Configuration } from "../configuration/index.js";
import { withMemoryAdvice, type Algorithm, type System } from "../core/index.js";
import { ASTEvaluator } from "../evaluation/index.js";
import { presetReward } from "../reward/index.js";
import { ASTSampler } from "../sampler/index.js";
import { HFASTSystem, HFEvaluationSystem } from "../system/index.js";
import { HFASTConfiguration, HFASTTrainer, type HFASTTrainerOptions } from "../training/index.js";
import { modelSource } from "./model-source.js";
import { loadPrompts } from "./prompts.js";
import { assembleScorer } from "./scorer.js";

/**
 * Loads the models and the scorer of a configuration, to train.
 *
 * @param hub how models of the hub are fetched, and who is told of it
 * @returns a system that the caller disposes of
 * @throws UsageError for a model or a scorer that cannot be loaded
 */
export async function assembleSystem(
  configuration: Configuration,
  hub: HubOptions = {},
): Promise<HFASTSystem> {
  const { baseline, lora, updateDtype, gradientCheckpointing } = configuration.models;
  const options = {
    ...(await rolloutOptions(configuration, hub)),
    ...(baseline === undefined ? {} : { baseline: modelSource(baseline) }),
    ...(updateDtype === undefined ? {} : { updateDtype }),
    ...(lora === undefined ? {} : { lora: { ...lora, seed: configuration.seed } }),
    gradientCheckpointing,
  };
  return withMemoryAdvice("load", () => HFASTSystem.load(options));
}

/** The tester and the target of a configuration, to roll out and nothing else: no weights are held for training. */
export async function assembleEvaluationSystem(
  configuration: Configuration,
  hub: HubOptions = {},
): Promise<HFEvaluationSystem> {
  const options = await rolloutOptions(configuration, hub);
  return withMemoryAdvice("load", () => HFEvaluationSystem.load(options));
}

async function rolloutOptions(configuration: Configuration, hub: HubOptions) {
  const { models, generation } = configuration;
  const { tester, target, device, targetDevice = device, dtype } = models;
  const scorer = await assembleScorer(configuration.scorer);
  const { form: preset, ...weights } = configuration.reward;
  return {
    tester: modelSource(tester),
    target: modelSource(target),
    hub,
    scorer,
    device,
    targetDevice,
    inferenceDtype: dtype,
    generation,
    reward: presetReward(scorer, { preset, ...weights }),
  };
}

/** @param prompts the training prompts */
export function assembleSampler(
  configuration: Configuration,
  system: System,
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
  system: System,
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
