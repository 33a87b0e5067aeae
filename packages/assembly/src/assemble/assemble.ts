import type { HubOptions, Conversation, Message } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import type { Tensor } from "@astra-rl/torch";
import {
  ASTEvaluator,
  HFASTConfiguration,
  HFASTTrainer,
  type Algorithm,
  type MetricsLogger,
  type Evaluator,
  type Sampler,
  type System,
  type HFASTConfigurationOptions,
  type HFASTTrainerOptions,
} from "@astra-rl/method";
import type { EvaluationRecord } from "@astra-rl/records";
import { checkpointOf, findKind, type Configuration, type ModelSetting } from "../configuration/index.js";
import { promptAsText, promptText, textsSeen, type Prompt } from "../datasets/index.js";
import { EMBEDDED_SCORER_LIMITS, embeddedScorerKind } from "../embedded/index.js";
import { isEmbedded } from "./model-source.js";
import { loadPrompts } from "./prompts.js";
import { untoldModel, type AssembledSystem } from "./system-models.js";
import { makePart } from "./parts.js";
import { madePart, type AssembledTrainer, type ProgramParts } from "./program-parts.js";

/**
 * The initial states of rollouts: the prompts, as texts if models get no speakers; for a custom system
 * whose states are not texts, the results of its `startFrom`.
 */
function startsOf(assembled: AssembledSystem, prompts: readonly Prompt[]): readonly Prompt[] {
  const { system } = assembled;
  const { startFrom } = system as { startFrom?: (prompt: string) => string };
  if (typeof startFrom === "function") return prompts.map((text) => startFrom.call(system, promptText(text)));
  return untoldModel(assembled) === null ? prompts : prompts.map(promptAsText);
}

/**
 * @param prompts the training prompts
 * @param parts parts that a program made, which are used instead of the configuration's
 */
export function assembleSampler(
  { sampler, seed }: Configuration,
  assembled: AssembledSystem,
  prompts: readonly Prompt[],
  parts: ProgramParts = {},
): Promise<Sampler> {
  const given = { system: assembled.system, prompts: startsOf(assembled, prompts), seed };
  if (parts.sampler === undefined) return makePart("sampler", sampler, given);
  return madePart("sampler", parts.sampler, given);
}

export function assembleAlgorithm(
  { algorithm, seed }: Configuration,
  system: System,
  parts: ProgramParts = {},
): Promise<Algorithm> {
  if (parts.algorithm === undefined) return makePart("algorithm", algorithm, { system, seed });
  return madePart("algorithm", parts.algorithm, { system, seed });
}

export async function assembleLoggers({ logging, seed }: Configuration): Promise<MetricsLogger[]> {
  const loggers: MetricsLogger[] = [];
  for (const section of logging) loggers.push(await makePart("logger", section, { seed }));
  return loggers;
}

/**
 * Creates an evaluator: single-path rollouts from the given prompts with the run's sampler, and the evaluation's
 * depth and threshold.
 *
 * @param assembled created from this configuration; its embedder compares attacks
 * @param options `trainingPrompts`, prompts that training has seen, which held-out ones are compared with; `parts` that a
 * program made
 * @throws UsageError for a depth that the sampler does not accept
 */
export async function assembleEvaluator<E extends AnyEvaluator = ASTEvaluator>(
  configuration: Configuration,
  assembled: AssembledSystem,
  prompts: readonly Prompt[],
  { trainingPrompts = [], parts = {} }: { trainingPrompts?: readonly Prompt[]; parts?: ProgramParts } = {},
): Promise<E> {
  const { sampler, evaluation, seed } = configuration;
  const { depth, threshold } = evaluation;
  if (depth !== undefined && !("depth" in sampler)) {
    throw new UsageError(
      "inapplicable-option",
      `evaluation.depth: the sampler ${sampler.type} has no option depth; leave it out`,
    );
  }
  // Evaluations follow a single path, so the width of built-in samplers must not count against their turn limit.
  // Options of custom samplers are not changed.
  const isOurs = findKind("sampler", sampler.type) !== null;
  const section = {
    ...sampler,
    ...(isOurs && "width" in sampler ? { width: 1 } : {}),
    ...(depth === undefined ? {} : { depth }),
  };
  const paths = await assembleSampler({ ...configuration, sampler: section }, assembled, prompts, parts);
  // A sampler that cannot start from prompts evaluates as many episodes as there are prompts.
  const { startsFromPrompts = true } = paths as Partial<Sampler>;
  if (!startsFromPrompts && evaluation.repeats > 1) {
    throw new UsageError(
      "inapplicable-option",
      `evaluation.repeats: the sampler ${sampler.type} does not start from prompts; leave it out`,
    );
  }
  const starts = startsFromPrompts
    ? startsOf(assembled, prompts)
    : prompts.map((_, episode) => ({ seed, episode }));
  const { evaluators } = assembled;
  const own = assembled.system as { scorer?: unknown; embedder?: unknown };
  const Evaluator: unknown = parts.evaluator ?? ASTEvaluator;
  const evaluator: unknown = new (Evaluator as typeof ASTEvaluator)(paths, starts, {
    threshold,
    repeats: evaluation.repeats,
    controls: evaluation.controls,
    trainingPrompts: textsSeen(trainingPrompts, prompts),
    ...(evaluators.second === undefined ? {} : { secondScorer: evaluators.second }),
    ...(own.scorer === undefined ? { scorer: evaluators.scorer } : {}),
    ...(own.embedder === undefined ? { embedder: evaluators.embedder } : {}),
  });
  return evaluator as E;
}

/** Whether a user's model would be scored by the embedded scorer, which was made for the demo. */
export function trustsEmbeddedScorer({ scorer }: Configuration, models: readonly ModelSetting[]): boolean {
  const isOurs = (model: ModelSetting) => isEmbedded(checkpointOf(model) ?? "");
  return scorer.type === embeddedScorerKind.name && !models.every(isOurs);
}

type AnyEvaluator = Evaluator<Conversation, Message, EvaluationRecord>;

/**
 * Creates the complete trainer of a configuration whose learning rate is a number.
 *
 * @param hub how prompts are downloaded from the hub
 * @param parts parts that a program made, which are used instead of the configuration's
 */
export async function assembleTrainer(
  configuration: Configuration,
  assembled: AssembledSystem,
  options: Omit<HFASTTrainerOptions, "evaluator">,
  hub: HubOptions = {},
  parts: ProgramParts = {},
): Promise<AssembledTrainer> {
  const { system } = assembled;
  const { training, models, seed } = configuration;
  const sampler = await assembleSampler(
    configuration,
    assembled,
    await loadPrompts(configuration, "train", hub, parts),
    parts,
  );
  const algorithm = await assembleAlgorithm(configuration, system, parts);
  const evaluates = training.evaluateEvery > 0;
  const named = [models.tester, ...models.otherTesters, models.target, ...models.otherTargets];
  const speakers = named.filter((model) => (model as typeof model | undefined) !== undefined);
  if (trustsEmbeddedScorer(configuration, speakers)) options.logger?.warn(EMBEDDED_SCORER_LIMITS);
  const settings = new HFASTConfiguration({ ...training, seed } as HFASTConfigurationOptions);
  const all: HFASTTrainerOptions = {
    loggers: [...(await assembleLoggers(configuration)), ...(parts.loggers ?? [])],
    credit: parts.credit ?? (await makePart("credit", configuration.credit, { seed })),
    ...(parts.optimizer === undefined
      ? {}
      : {
          optimizer: await madePart("optimizer", parts.optimizer, {
            system,
            parameters: [...system.parameters()] as Tensor[],
          }),
        }),
    ...options,
    ...(evaluates
      ? {
          evaluator: await assembleEvaluator(
            // Evaluations during training select checkpoints; they try each prompt once.
            { ...configuration, evaluation: { ...configuration.evaluation, repeats: 1 } },
            assembled,
            await loadPrompts(configuration, "dev", hub, parts),
            { parts },
          ),
        }
      : {}),
  };
  return new (parts.trainer ?? HFASTTrainer)(settings, sampler, algorithm, all);
}
