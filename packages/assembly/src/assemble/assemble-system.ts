import type { HubOptions } from "@astra-rl/lm";
import { UsageError, dotted } from "@astra-rl/base";
import {
  disposeOnce,
  withMemoryAdvice,
  presetReward,
  Reward,
  HFASTSystem,
  HFEvaluationSystem,
  restoreTester,
  type KindSection,
  type Embedder,
  type Model,
  type Purpose,
  type Scorer,
  type System,
  type LoadableSystem,
  type WeightedTerm,
} from "@astra-rl/method";
import {
  checkpointOf,
  configuredModels,
  isLoadable,
  type Configuration,
  type ModelSetting,
} from "../configuration/index.js";
import { modelSource } from "./model-source.js";
import { madePart, type ProgramParts } from "./program-parts.js";
import type { AssembledSystem, Evaluators } from "./system-models.js";
import { algorithmNeeds, makePart, makeScorer } from "./parts.js";

/**
 * Loads the models and the scorer of a configuration for training, and all scorers of evaluations if `isEvaluation`.
 *
 * @param hub how models are downloaded from the hub, and where progress is reported
 * @param parts parts that a program made, which are used instead of the configuration's
 * @returns a system, which the caller disposes of, and its evaluators, which are disposed of with it
 * @throws UsageError for a model or a scorer that cannot be loaded
 */
export async function assembleSystem<T extends System = HFASTSystem>(
  configuration: Configuration,
  hub: HubOptions = {},
  parts: ProgramParts = {},
  isEvaluation = false,
): Promise<AssembledSystem<T>> {
  const from = { configuration, hub, parts, isEvaluation };
  const made = withEvaluators(from, (judges) =>
    configuration.system === undefined
      ? loadSystem(HFASTSystem, from, { ...judges })
      : ownSystem("train", from, judges),
  );
  return (await made) as unknown as AssembledSystem<T>;
}

/** What a system is assembled from. */
interface From {
  configuration: Configuration;
  hub: HubOptions;
  parts: ProgramParts;
  isEvaluation: boolean;
}

/** What judges the turns of a system, which may use it itself. */
type Judges = Omit<Evaluators, "second" | "refusal" | "utility">;

/** Loads the models of a configuration into a system of this class. @param own judges and further options of `load` */
function loadSystem(
  Class: LoadableSystem,
  { configuration, hub }: From,
  own: Readonly<Record<string, unknown>>,
): Promise<System> {
  const { lora } = configuration.models;
  const options = {
    ...(lora === undefined ? {} : { lora: { ...lora, seed: configuration.seed } }),
    valueHead: algorithmNeeds(configuration).includes("values"),
  };
  return loadModels(Class, configuration, hub, { ...options, ...own });
}

/** Creates targets from modules, and loads a class with all models; frees everything on failure. */
async function loadModels(
  Class: LoadableSystem,
  configuration: Configuration,
  hub: HubOptions,
  options: Readonly<Record<string, unknown>>,
): Promise<System> {
  const { generation, seed } = configuration;
  const made: Model[] = [];
  const loaded: Record<string, unknown> = { otherTesters: [], otherTargets: [] };
  try {
    for (const { path, name, source, setting } of configuredModels(configuration)) {
      if (source === "checkpoint") {
        place(loaded, path, loadable(setting));
        continue;
      }
      const speaker = name.startsWith("tester") ? "tester" : "target";
      const parts = {
        generation: generation[speaker],
        seed,
        role: name === "likelihood" ? name : speaker,
        name,
        key: dotted(["models", ...path]),
      } as const;
      const own = await makePart("target", setting as KindSection, parts);
      made.push(own);
      place(loaded, path, own);
    }
    return await Class.load({ ...modelOptions(configuration, hub), ...loaded, ...options } as never);
  } catch (error) {
    for (const model of made) disposeOnce(model);
    throw error;
  }
}

/** Sets the value of a key, or of a place in the list of that key. */
function place(into: Record<string, unknown>, [key, at]: readonly (string | number)[], value: unknown): void {
  if (at === undefined) into[key!] = value;
  else (into[key!] as unknown[]).push(value);
}

/** Creates a custom system, of a module or a program. */
async function ownSystem(
  purpose: Purpose,
  from: From,
  judges: Judges,
  instead: { tester?: Model } = {},
): Promise<System> {
  const { configuration, hub, parts } = from;
  const { seed } = configuration;
  let isLoaded = false;
  const load = (Class: LoadableSystem, options: Readonly<Record<string, unknown>>) => {
    isLoaded = true;
    const missing = (["tester", "target"] as const).find((role) => configuration.models[role] === undefined);
    if (missing === undefined) {
      if (instead.tester === undefined) return loadSystem(Class, from, { ...judges, ...options });
      // HFASTSystem.load does not accept a tester without weights: the class gets the parts of an evaluation.
      const Evaluated = { name: Class.name, load: HFEvaluationSystem.load.bind(Class as never) };
      const all = { ...judges, ...options, ...instead };
      return loadForEvaluation(Evaluated as never, configuration, hub, all);
    }
    throw new UsageError(
      "missing-model",
      `system: ${Class.name} is loaded with models, but models.${missing} is missing`,
    );
  };
  const given = { ...judges, purpose, seed, load };
  const own = parts.system;
  const system = await (own === undefined
    ? makePart("system", configuration.system!, given)
    : isLoadable(own)
      ? load(own, {})
      : madePart("system", own, given));
  if (instead.tester !== undefined && !isLoaded) {
    disposeOnce(system);
    throw new UsageError(
      "own-tester",
      "system: a custom system that is not loaded with models has its own tester, which cannot be replaced",
    );
  }
  const { tester } = configuration.models as { tester?: ModelSetting };
  // A system loaded with models has already loaded its tester.
  if (purpose === "evaluate" && tester !== undefined && !isLoaded)
    await restoreTester(system, savedTester(tester));
  return system;
}

/** The folder from which a custom system restores its tester. */
function savedTester(tester: ModelSetting): string {
  const folder = checkpointOf(tester);
  if (folder !== null) return folder;
  throw new UsageError(
    "folder-required",
    "models.tester: a custom system restores its tester from a folder; give one",
  );
}

/** Frees additional parts when the system is disposed of. */
function disposeTogether(system: System, parts: readonly ({ dispose(): void } | undefined)[]): void {
  const dispose = system.dispose.bind(system);
  Object.defineProperty(system, "dispose", {
    configurable: true,
    value: () => {
      dispose();
      for (const part of parts) if (part !== undefined) disposeOnce(part);
    },
  });
}

/**
 * Loads the tester and the target of a configuration for rollouts only, without weights for training.
 *
 * @param instead a tester that replaces the configured one, and parts that a program made
 * @throws UsageError with `instead` for a custom system that is not loaded with models
 */
export async function assembleEvaluationSystem<T extends System = HFEvaluationSystem>(
  configuration: Configuration,
  hub: HubOptions = {},
  instead: { tester?: Model; parts?: ProgramParts } = {},
): Promise<AssembledSystem<T>> {
  const { parts = {}, ...tester } = instead;
  const from = { configuration, hub, parts, isEvaluation: true };
  const made = withEvaluators(from, (judges) =>
    configuration.system === undefined
      ? loadForEvaluation(HFEvaluationSystem, configuration, hub, { ...judges, ...tester })
      : ownSystem("evaluate", from, judges, tester),
  );
  return (await made) as unknown as AssembledSystem<T>;
}

/** Loads a class without weights for training. @param options judges, and a tester that replaces the configured one */
function loadForEvaluation(
  Class: LoadableSystem,
  configuration: Configuration,
  hub: HubOptions,
  options: Readonly<Record<string, unknown>> & { tester?: Model },
): Promise<System> {
  const { models } = configuration;
  const rest = Object.entries(models).filter(([key]) => !OF_TRAINING.includes(key));
  const kept = Object.fromEntries(rest) as Configuration["models"];
  if (!models.evaluateOtherTesters || options.tester !== undefined) kept.otherTesters = [];
  if (options.tester !== undefined) delete (kept as Partial<typeof kept>).tester;
  return loadModels(Class, { ...configuration, models: kept }, hub, options);
}

/** Creates the evaluators of a configuration, and a system with them; frees everything on failure. */
async function withEvaluators(
  { configuration, hub, parts, isEvaluation }: From,
  load: (judges: Judges) => Promise<System>,
): Promise<AssembledSystem> {
  /** Those that are freed with the system. */
  const made: Partial<Evaluators> = {};
  try {
    const { seed } = configuration;
    const scorer = parts.scorer ?? (made.scorer = await makeScorer(configuration.scorer, { seed, hub }));
    const embedder =
      parts.embedder ?? (made.embedder = await makePart("embedder", configuration.embedder, { seed }));
    const reward =
      parts.reward === undefined
        ? (made.reward = await assembleReward(configuration, scorer, embedder, hub))
        : await madePart("reward", parts.reward, { scorer, embedder, seed });
    const { secondScorer, benign, utility } = configuration.evaluation;
    if (secondScorer !== undefined) made.second = await makeScorer(secondScorer, { seed, hub });
    if (isEvaluation && benign !== undefined) made.refusal = await makeScorer(benign.refusal, { seed, hub });
    if (isEvaluation && utility !== undefined) made.utility = await makeScorer(utility, { seed, hub });
    const system = await withMemoryAdvice("load", () => load({ scorer, embedder, reward }));
    // If the system does not use these judges itself, it cannot free them.
    const isTheirs = (system as { scorer?: unknown }).scorer === scorer;
    const unowned = isTheirs ? [made.second, made.refusal, made.utility] : Object.values(made);
    disposeTogether(system, unowned);
    return { system, evaluators: { ...made, scorer, embedder, reward } };
  } catch (error) {
    for (const part of Object.values(made)) disposeOnce(part);
    throw error;
  }
}

/** Keys of `models` that only training uses. */
const OF_TRAINING = ["baseline", "updateDtype", "gradientCheckpointing", "otherTesterShare"];

/** What to load for a checkpoint, alone or with its format. */
function loadable(model: ModelSetting): unknown {
  if (typeof model === "string") return modelSource(model);
  return { ...model, path: modelSource(checkpointOf(model)!) };
}

/** The options of `load` from the `models` section, but for the models themselves. */
function modelOptions({ models, generation }: Configuration, hub: HubOptions): Record<string, unknown> {
  const { lora: _, dtype, date, ...given } = models;
  const day = date === undefined ? {} : { date: new Date(`${date}T00:00:00`) };
  return { ...given, hub, inferenceDtype: dtype, generation, ...day };
}

/**
 * @param scorer the run's scorer, used by harm terms; its scores are recorded
 * @param embedder the run's embedder, with which novelty terms compare probes
 * @param hub hub options for the terms' own scorers
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
