import { totalmem } from "node:os";
import {
  CacheBudget,
  LocalModel,
  formatOf,
  makeFormat,
  type CausalLM,
  type Format,
  type Sampling,
  type FormattedModel,
} from "@astra-rl/lm";
import { describeValue, UsageError, hasMethods, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import {
  disposing,
  ModelCache,
  LocalTester,
  type Embedder,
  type Model,
  type Tester,
  type ModelRole,
  type ModelShelfOptions,
  type ModelSource,
  type LocalTesterOptions,
  type TesterWeights,
} from "../models/index.js";
import type { Scorer } from "../scorer/index.js";
import type { Reward } from "../reward/index.js";
import { systemOptions, type ASTSystemOptions } from "./system-parts.js";

/** Sampling settings of each role; omitted ones come from `DEFAULT_SAMPLING`. */
export interface GenerationOptions {
  tester?: Partial<Sampling>;
  target?: Partial<Sampling>;
}

/** The settings of the Python toolbox (sisl/astra-rl). */
export const DEFAULT_SAMPLING: Readonly<Sampling> = { maxNewTokens: 32, temperature: 1, topK: 50, topP: 0.9 };

/**
 * Common options of systems on Hugging Face checkpoints. The system takes ownership of scorer, reward, embedder and
 * custom models; if loading fails, the caller keeps them.
 */
export interface HFSystemOptions extends ASTSystemOptions, ModelShelfOptions {
  /**
   * A model, or a model with its conversation format: `{ path, format, system, … }`. The baseline uses the same format.
   */
  tester: ModelSource | FormattedModel | Tester;
  /** Further testers, never trained; with the tester's tokenizer. Default: none. */
  otherTesters?: readonly (ModelSource | FormattedModel | Model)[];
  /** A checkpoint, optionally with its conversation format; or a custom Model. */
  target: ModelSource | FormattedModel | Model;
  /** Further models under test. Default: none. */
  otherTargets?: readonly (ModelSource | FormattedModel | Model)[];
  /**
   * Provides probe likelihoods where the target cannot; on the target's device, with its tokenizer. A checkpoint that
   * another role also uses is loaded once. Or a custom Model. Default: the target.
   */
  likelihood?: ModelSource | Model;
  scorer?: Scorer;
  /** Reward of a turn. Default: the paper's reward over the scorer. */
  reward?: Reward;
  /** Measures similarity of attacks. Default: chosen by the evaluator. */
  embedder?: Embedder;
  generation?: GenerationOptions;
  /** Maximum size of the KV cache in bytes; larger batches are split. Default: a quarter of the memory. */
  cacheBytes?: number;
  /** The date for chat templates that write one. Default: now. */
  date?: Date;
  /** Called once per role when a conversation exceeds its model's context window. Default: prints to stderr. */
  log?: (message: string) => void;
}

/** Names of the options in `HFSystemOptions`: others are refused here; values are checked where they are used. */
const OPTIONS = [
  "tester",
  "otherTesters",
  "target",
  "otherTargets",
  "likelihood",
  "scorer",
  "reward",
  "embedder",
  "generation",
  "cacheBytes",
  "date",
  "log",
  "device",
  "testerDevice",
  "targetDevice",
  "baselineDevice",
  "inferenceDtype",
  "updateDtype",
  "testerTokenizer",
  "targetTokenizer",
  "graphs",
  "hub",
] as const satisfies readonly (keyof HFSystemOptions)[];

/**
 * @param more names of further options
 * @param needed options that must be given
 * @throws UsageError for an unknown option, and for a missing one
 */
export function checkHFOptions<T extends HFSystemOptions>(
  where: string,
  given: T,
  more: readonly (keyof T & string)[],
  needed: readonly ("tester" | "target" | "scorer")[],
): void {
  const example = `write { ${needed.join(", ")} }, in which tester and target are checkpoints`;
  if (typeof given !== "object" || given === null) {
    throw new UsageError(
      "options-not-an-object",
      `${where}.load: takes one object, got ${describeValue(given)}; ${example}`,
    );
  }
  const names = [...OPTIONS, ...more].map((name) => [name, z.any().optional()] as const);
  const schema = z.strictObject({ ...Object.fromEntries(names), ...systemOptions.shape });
  parseOptions(`${where}.load`, schema, given, {
    model: example,
    testerModel: "write tester",
    targetModel: "write target",
    dtype: "write inferenceDtype, or updateDtype",
  });
  for (const name of needed) {
    if (given[name] !== undefined && given[name] !== null) continue;
    throw new UsageError("missing-key", `${where}.load: ${name} is missing; ${example}`);
  }
}

/** What one kind of system adds to the common parts. */
export interface OwnParts {
  /** Absent for a tester that is not a checkpoint. */
  weights?: TesterWeights;
  testerOptions?: Pick<LocalTesterOptions, "gradientCheckpointing" | "valueHead">;
  /** Whether to load a baseline. */
  hasBaseline?: true;
}

/**
 * Loads the models and constructs a system; on failure, all loaded weights are freed.
 *
 * @param given checked options
 * @param loadOwn called first
 */
export async function loadHFSystem<S>(
  System: new (parts: never, options: ASTSystemOptions) => S,
  given: HFSystemOptions & { baseline?: ModelSource },
  loadOwn: (shelf: ModelCache) => Promise<OwnParts>,
): Promise<S> {
  const { tester, target, likelihood, date = new Date() } = given;
  const { otherTesters = [], otherTargets = [] } = given;
  const { generation = {}, cacheBytes = defaultCacheBytes(), log = (text) => console.error(text) } = given;
  const { scorer, reward, embedder } = given;
  const checkpoints = (models: readonly (ModelSource | FormattedModel | Model)[]) =>
    models.flatMap((each) => (isModel(each) ? [] : [sourceOf(each)]));
  const sources = {
    tester: checkpoints([tester, ...otherTesters]),
    target: checkpoints([target, ...otherTargets, likelihood ?? []].flat()),
    baseline: checkpoints([given.baseline ?? tester]),
  };
  for (const name of ["testerDevice", "testerTokenizer", "targetDevice", "targetTokenizer"] as const) {
    const role = name.startsWith("tester") ? "tester" : "target";
    if (sources[role].length > 0 || given[name] === undefined) continue;
    throw new UsageError(
      "inapplicable-option",
      `${System.name}.load: ${name} is for checkpoints, but every ${role} is a model of another kind; leave it out`,
    );
  }
  const shelf = await ModelCache.open(given, sources);
  const shared = {
    cacheBudget: new CacheBudget(cacheBytes),
    onTruncate: log,
    onDispose: () => shelf.dispose(),
    ...(given.graphs === "auto" && { graphs: (model: CausalLM) => shelf.graphsOf(model, log) }),
  };
  // The baseline never generates, and encodes conversations as the tester does.
  const optionsOf = (role: "tester" | "target") => {
    return { ...shared, role, sampling: { ...DEFAULT_SAMPLING, ...generation[role] } };
  };
  const load = async (
    name: string,
    role: ModelRole,
    given: ModelSource | FormattedModel,
    readsAs?: Format,
  ): Promise<LocalModel> => {
    const { model, tokenizer } = await shelf.frozen(role, sourceOf(given));
    const options = optionsOf(role === "target" ? "target" : "tester");
    const format = readsAs ?? makeFormat(name, tokenizer, options.role, formatOf(given), date);
    return new LocalModel(name, { ...options, tokenizer, format, model: () => model });
  };
  const loadAny = async (name: string, role: ModelRole, given: ModelSource | FormattedModel | Model) =>
    isModel(given) ? given : load(name, role, given);
  const loadTester = ({ weights, testerOptions }: OwnParts): [Tester, Format?] => {
    if (isModel(tester)) return [tester];
    const format = makeFormat("tester", weights!.tokenizer, "tester", formatOf(tester), date);
    return [new LocalTester(weights!, { ...optionsOf("tester"), format, ...testerOptions }), format];
  };
  return disposing(shelf, async () => {
    const own = await loadOwn(shelf);
    const [speaker, format] = loadTester(own);
    const parts = {
      tester: speaker,
      otherTesters: await inOrder(otherTesters, (each, at) => loadAny(`tester-${at + 2}`, "tester", each)),
      target: await loadAny("target", "target", target),
      otherTargets: await inOrder(otherTargets, (each, at) => loadAny(`target-${at + 2}`, "target", each)),
      baseline: own.hasBaseline && (await load("baseline", "baseline", sources.baseline[0]!, format)),
      likelihood: likelihood && (await loadAny("likelihood", "target", likelihood)),
      scorer,
      reward,
      embedder,
    };
    const names = Object.keys(systemOptions.shape) as (keyof ASTSystemOptions)[];
    return new System(parts as never, Object.fromEntries(names.map((name) => [name, given[name]])));
  });
}

/**
 * Refuses arguments of `load` in a constructor, whose parts are loaded models.
 *
 * @throws UsageError with the correct call
 */
export function requireModels(where: string, parts: unknown): void {
  const { tester, target } = (parts ?? {}) as { tester?: unknown; target?: unknown };
  const missing = [tester, target].find((part) => !hasMethods(part, ["generate"]));
  if (hasMethods(tester, ["generate"]) && hasMethods(target, ["generate"])) return;
  const given = typeof parts === "object" && parts !== null ? missing : parts;
  throw new UsageError(
    "not-loaded",
    `${where}: needs models that are loaded, got ${describeValue(given)}; write ` +
      `await ${where}.load({ tester, target, scorer })`,
  );
}

/** Whether the value is a model rather than the source of one. */
export const isModel = <M extends Model>(given: ModelSource | FormattedModel | M): given is M =>
  typeof given === "object" && "generate" in given;

const isFormatted = (given: ModelSource | FormattedModel): given is FormattedModel =>
  typeof given === "object" && "path" in given;

/** The checkpoint of a model that may be given with its format. */
export const sourceOf = (given: ModelSource | FormattedModel): ModelSource =>
  isFormatted(given) ? given.path : given;

async function inOrder<T, U>(items: readonly T[], load: (item: T, at: number) => Promise<U>): Promise<U[]> {
  const loaded: U[] = [];
  for (const [at, item] of items.entries()) loaded.push(await load(item, at));
  return loaded;
}

/** A quarter of the memory available to this process, which leaves room for weights, gradients and optimizer state. */
function defaultCacheBytes(): number {
  // 0 or a huge number if the process has no memory limit.
  const constrained = process.constrainedMemory();
  return Math.min(totalmem(), constrained > 0 ? constrained : Infinity) / 4;
}
