import type { HubOptions } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import {
  configurationSettings,
  findKind,
  type Configuration,
  type KindSection,
} from "../configuration/index.js";
import {
  disposeOnce,
  type Algorithm,
  type Credit,
  type MetricsLogger,
  type Embedder,
  type Evaluator,
  type Model,
  type Purpose,
  type Sampler,
  type Scorer,
  type System,
  type Conversation,
  type Message,
} from "../core/index.js";
import type { LoadableSystem, RunnableTrainer } from "../kinds/index.js";
import { withMemoryAdvice } from "../training/memory-advice.js";
import { ASTEvaluator } from "../evaluation/index.js";
import type { EvaluationRecord } from "../records/index.js";
import { presetReward, Reward, type WeightedTerm } from "../reward/index.js";
import { EMBEDDED_SCORER_LIMITS, embeddedScorerKind } from "../scorer/index.js";
import { HFASTSystem, HFEvaluationSystem, type ASTSystem } from "../system/index.js";
import {
  HFASTConfiguration,
  HFASTTrainer,
  restoreTester,
  tensorBoardKind,
  type HFASTConfigurationOptions,
  type HFASTTrainerOptions,
} from "../training/index.js";
import { isEmbedded, modelSource } from "./model-source.js";
import { loadPrompts } from "./prompts.js";
import { algorithmNeeds, assembleEmbedder, assembleScorer, makePart, makeScorer } from "./parts.js";

/**
 * Loads the models and the scorer of a configuration, to train.
 *
 * @param hub how models are downloaded from the hub, and where progress is reported
 * @returns a system that the caller disposes of
 * @throws UsageError for a model or a scorer that cannot be loaded
 */
export async function assembleSystem<T extends System = HFASTSystem>(
  configuration: Configuration,
  hub: HubOptions = {},
): Promise<T> {
  const { system } = configuration;
  const made =
    system === undefined
      ? loadSystem(HFASTSystem, configuration, hub)
      : ownSystem(configuration, system, "train", hub);
  return (await made) as unknown as T;
}

/** Loads the models of a configuration into a system of this class. */
async function loadSystem(
  Class: LoadableSystem,
  configuration: Configuration,
  hub: HubOptions,
  own: Readonly<Record<string, unknown>> = {},
): Promise<System> {
  const { lora } = configuration.models;
  const options = {
    ...(lora === undefined ? {} : { lora: { ...lora, seed: configuration.seed } }),
    valueHead: (await algorithmNeeds(configuration)).includes("values"),
  };
  return withJudges(configuration, hub, (judges) =>
    loadModels(Class, configuration, hub, { ...options, ...judges, ...own }),
  );
}

/** Makes the targets of modules, and loads a class with all models; where that fails, nothing is left. */
async function loadModels(
  Class: LoadableSystem,
  configuration: Configuration,
  hub: HubOptions,
  options: Readonly<Record<string, unknown>>,
): Promise<System> {
  const { models, generation, seed } = configuration;
  const made: Model[] = [];
  const load = async (target: string | KindSection) => {
    if (typeof target === "string") return modelSource(target);
    const own = await makePart("target", target, { generation: generation.target, seed });
    made.push(own);
    return own;
  };
  try {
    const target = await load(models.target);
    const otherTargets: Awaited<ReturnType<typeof load>>[] = [];
    for (const other of models.otherTargets) otherTargets.push(await load(other));
    return await Class.load({
      ...modelOptions(configuration, hub),
      target,
      otherTargets,
      ...options,
    } as never);
  } catch (error) {
    for (const model of made) disposeOnce(model);
    throw error;
  }
}

/** The system that a module of the user's makes; with it goes what judges in the run. */
async function ownSystem(
  configuration: Configuration,
  section: KindSection,
  purpose: Purpose,
  hub: HubOptions,
): Promise<System> {
  const { seed } = configuration;
  let isLoaded = false;
  const load = (Class: LoadableSystem, options: Readonly<Record<string, unknown>>) => {
    isLoaded = true;
    const missing = (["tester", "target"] as const).find((role) => configuration.models[role] === undefined);
    if (missing === undefined) return loadSystem(Class, configuration, hub, options);
    throw new UsageError(`system: ${Class.name} is loaded with models, and models.${missing} is not given`);
  };
  return withJudges(configuration, hub, async (judges) => {
    const system = await makePart("system", section, { ...judges, purpose, seed, load });
    const { tester } = configuration.models as { tester?: string };
    // A system that is loaded with models has read its tester already.
    if (purpose === "evaluate" && tester !== undefined && !isLoaded) await restoreTester(system, tester);
    const judgesOwn = (system as { scorer?: unknown }).scorer === judges.scorer;
    // Loaded systems judge by what they were loaded with; these would be left over.
    if (!judgesOwn) disposeTogether(system, Object.values(judges));
    judgesOf.set(system, judges);
    return system;
  });
}

/** What judges in the run of a system of the user's. */
const judgesOf = new WeakMap<System, Judges>();

/** Has parts freed with a system that does not know of them. */
function disposeTogether(system: System, parts: readonly { dispose(): void }[]): void {
  const dispose = system.dispose.bind(system);
  Object.defineProperty(system, "dispose", {
    configurable: true,
    value: () => {
      dispose();
      for (const part of parts) disposeOnce(part);
    },
  });
}

/** The tester and the target of a configuration, to roll out and nothing else: no weights are held for training. */
export async function assembleEvaluationSystem<T extends System = HFEvaluationSystem>(
  configuration: Configuration,
  hub: HubOptions = {},
): Promise<T> {
  if (configuration.system !== undefined)
    return (await ownSystem(configuration, configuration.system, "evaluate", hub)) as unknown as T;
  const { models } = configuration;
  const rest = Object.entries(models).filter(([key]) => !OF_TRAINING.includes(key));
  const kept = Object.fromEntries(rest) as Configuration["models"];
  if (!models.evaluateOtherTesters) kept.otherTesters = [];
  const system = await withJudges(configuration, hub, (judges) =>
    loadModels(HFEvaluationSystem, { ...configuration, models: kept }, hub, { ...judges }),
  );
  return system as unknown as T;
}

/**
 * The states that rollouts start from: the prompts, or what a system of the user's makes of each by a method `startFrom`, where
 * its states are no texts.
 */
function startsOf(system: System, prompts: readonly string[]): readonly string[] {
  const { startFrom } = system as { startFrom?: (prompt: string) => string };
  return typeof startFrom === "function" ? prompts.map((prompt) => startFrom.call(system, prompt)) : prompts;
}

/** What judges in a run; freed with the system that it is handed to. */
interface Judges {
  scorer: Scorer;
  embedder: Embedder;
  reward: Reward;
}

/** Makes what judges, and a system with it; where either fails, nothing is left. */
async function withJudges<T>(
  configuration: Configuration,
  hub: HubOptions,
  load: (judges: Judges) => Promise<T>,
): Promise<T> {
  const judges: Partial<Judges> = {};
  try {
    const scorer = (judges.scorer = await assembleScorer(configuration, hub));
    const embedder = (judges.embedder = await assembleEmbedder(configuration));
    const reward = await assembleReward(configuration, scorer, embedder, hub);
    judges.reward = reward;
    return await withMemoryAdvice("load", () => load({ scorer, embedder, reward }));
  } catch (error) {
    for (const part of Object.values(judges)) disposeOnce(part);
    throw error;
  }
}

/** What training alone takes of `models`. */
const OF_TRAINING = ["baseline", "updateDtype", "gradientCheckpointing", "otherTesterShare"];

const isModelKey = (key: string) =>
  /^(tester|otherTesters|baseline|likelihood|testerTokenizer|targetTokenizer)$/.test(key);

/** The options of `load` as `models` states them, models by what is loaded for their names; targets are made apart. */
function modelOptions({ models, generation }: Configuration, hub: HubOptions): Record<string, unknown> {
  const { target: _, otherTargets: __, lora: ___, dtype, ...given } = models;
  const entries = Object.entries(given).map(([key, value]) => {
    if (!isModelKey(key)) return [key, value];
    return [key, Array.isArray(value) ? value.map(modelSource) : modelSource(value as string)];
  });
  return { ...Object.fromEntries(entries), hub, inferenceDtype: dtype, generation };
}

/**
 * @param scorer the run's, by which harm terms judge and whose scores are recorded
 * @param embedder the run's, by which terms of novelty compare probes
 * @param hub how models of the hub are fetched for scorers that terms have of their own
 */
export async function assembleReward(
  { reward, seed }: Pick<Configuration, "reward" | "seed">,
  scorer: Scorer,
  embedder: Embedder,
  hub: HubOptions = {},
): Promise<Reward> {
  const { terms, clip = null, ...preset } = reward;
  if (terms === undefined) return presetReward(scorer, preset as Parameters<typeof presetReward>[1]);
  const own: Scorer[] = [];
  const makeOwn = async (section: KindSection) => {
    const made = await makeScorer(section, { seed, hub });
    own.push(made);
    return made;
  };
  const weighted: WeightedTerm[] = [];
  try {
    for (const { weight, optional, ...section } of terms) {
      const parts = { scorer, embedder, seed, makeScorer: makeOwn };
      const term = await makePart("term", section as KindSection, parts);
      weighted.push({ term, weight: weight as number, optional: optional as boolean });
    }
    return new Reward(weighted, { scorer, clip });
  } catch (error) {
    for (const made of own) disposeOnce(made);
    throw error;
  }
}

export function assembleCredit({ credit, seed }: Configuration): Promise<Credit> {
  return makePart("credit", credit, { seed });
}

/** @param prompts the training prompts */
export function assembleSampler(
  { sampler, seed }: Configuration,
  system: System,
  prompts: readonly string[],
): Promise<Sampler> {
  return makePart("sampler", sampler, { system, prompts: startsOf(system, prompts), seed });
}

export function assembleAlgorithm({ algorithm, seed }: Configuration, system: System): Promise<Algorithm> {
  return makePart("algorithm", algorithm, { system, seed });
}

export async function assembleLoggers({ logging, training, seed }: Configuration): Promise<MetricsLogger[]> {
  const loggers: MetricsLogger[] = [];
  const type = tensorBoardKind.name;
  const isShort = training.tensorboard && !logging.some((section) => section.type === type);
  for (const section of isShort ? [{ type }, ...logging] : logging)
    loggers.push(await makePart("logger", section, { seed }));
  return loggers;
}

/**
 * Single-path rollouts from the given prompts by the run's sampler, with the evaluation's own depth and threshold.
 *
 * @param system made of this configuration; attacks are compared by its embedder
 * @throws UsageError for a depth that the sampler does not take
 */
export async function assembleEvaluator<E extends AnyEvaluator = ASTEvaluator>(
  configuration: Configuration,
  system: System,
  prompts: readonly string[],
): Promise<E> {
  const { sampler, evaluation, seed } = configuration;
  const { depth, threshold } = evaluation;
  if (depth !== undefined && !("depth" in sampler)) {
    throw new UsageError(
      `evaluation.depth: the sampler ${sampler.type} has no depth that could be another one; leave it out`,
    );
  }
  // Evaluations follow one path: a width of our own samplers would only count against the limit of their trees. The options of
  // another sampler are left as they are.
  const isOurs = findKind("sampler", sampler.type) !== null;
  const section = {
    ...sampler,
    ...(isOurs && "width" in sampler ? { width: 1 } : {}),
    ...(depth === undefined ? {} : { depth }),
  };
  const paths = await makePart("sampler", section, { system, prompts: startsOf(system, prompts), seed });
  const judges = judgesOf.get(system);
  const starts = startsOf(system, prompts);
  if (configuration.evaluator !== undefined) {
    const scorer = judges?.scorer ?? (system as ASTSystem).scorer!;
    const parts = { system, sampler: paths, prompts: starts, scorer, threshold, seed };
    return (await makePart("evaluator", configuration.evaluator, parts)) as unknown as E;
  }
  // A sampler that has only a rollout evaluates as many episodes as there are prompts.
  const { startsFromPrompts = true } = paths as Partial<Sampler>;
  const evaluated = !startsFromPrompts ? prompts.map((_, episode) => ({ seed, episode })) : starts;
  const { scorer, embedder } = system as Partial<ASTSystem>;
  const evaluator: unknown = new ASTEvaluator(paths, evaluated, {
    threshold,
    ...(judges === undefined || scorer !== undefined ? {} : { scorer: judges.scorer }),
    ...(judges === undefined || embedder !== undefined ? {} : { embedder: judges.embedder }),
  });
  return evaluator as E;
}

/** Whether one of these models is the user's own and would be judged by the scorer that was made for the demo. */
export function trustsEmbeddedScorer(
  { scorer }: Configuration,
  models: readonly (string | KindSection)[],
): boolean {
  const isOurs = (model: string | KindSection) => typeof model === "string" && isEmbedded(model);
  return scorer.type === embeddedScorerKind.name && !models.every(isOurs);
}

type AnyEvaluator = Evaluator<Conversation, Message, EvaluationRecord>;

/** The trainer of a run: ours, or one of the user's, which need not evaluate. */
export type AssembledTrainer = RunnableTrainer & Partial<Pick<HFASTTrainer, "lastEvaluation">>;

/**
 * The whole training of a configuration, ready to start.
 *
 * @param hub how prompts of the hub are fetched
 */
export async function assembleTrainer(
  configuration: Configuration,
  system: System,
  options: Omit<HFASTTrainerOptions, "evaluator">,
  hub: HubOptions = {},
): Promise<AssembledTrainer> {
  const { training, models, seed } = configuration;
  const sampler = await assembleSampler(
    configuration,
    system,
    await loadPrompts(configuration, "train", hub),
  );
  const algorithm = await assembleAlgorithm(configuration, system);
  const evaluates = training.evaluateEvery > 0;
  const named = [models.tester, ...models.otherTesters, models.target, ...models.otherTargets];
  const speakers = named.filter((model) => (model as typeof model | undefined) !== undefined);
  if (trustsEmbeddedScorer(configuration, speakers)) options.logger?.warn(EMBEDDED_SCORER_LIMITS);
  const { tensorboard: _, ...trainingOptions } = training;
  const settings = new HFASTConfiguration({ ...trainingOptions, seed } as HFASTConfigurationOptions);
  const all: HFASTTrainerOptions = {
    settings: configurationSettings(configuration),
    loggers: await assembleLoggers(configuration),
    credit: await assembleCredit(configuration),
    ...options,
    ...(evaluates
      ? {
          evaluator: await assembleEvaluator(
            configuration,
            system,
            await loadPrompts(configuration, "dev", hub),
          ),
        }
      : {}),
  };
  if (configuration.trainer === undefined) return new HFASTTrainer(settings, sampler, algorithm, all);
  const parts = { configuration: settings, sampler, algorithm, options: all };
  return makePart("trainer", configuration.trainer, parts);
}
