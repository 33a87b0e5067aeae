import { totalmem } from "node:os";
import { CacheBudget, LocalModel, type LoadedCausalLM, type Sampling } from "@astra-rl/lm";
import { describeValue, UsageError } from "@astra-rl/torch";
import { z } from "zod";
import { parseOptions } from "../options/index.js";
import { type Embedder, type Scorer } from "../core/index.js";
import type { ModelShelf, ModelShelfOptions, ModelSource } from "../models/index.js";
import type { Reward } from "../reward/index.js";
import { systemOptions, type ASTSystemOptions } from "./system-parts.js";

/** How each role speaks; what is not given is `DEFAULT_SAMPLING`. */
export interface GenerationOptions {
  tester?: Partial<Sampling>;
  target?: Partial<Sampling>;
}

/** The Python toolbox's settings. */
export const DEFAULT_SAMPLING: Readonly<Sampling> = { maxNewTokens: 32, temperature: 1, topK: 50, topP: 0.9 };

/** What every system on Hugging Face checkpoints is loaded with; what judges (scorer, reward, embedder) is freed with it. */
export interface HFSystemOptions extends ASTSystemOptions, ModelShelfOptions {
  tester: ModelSource;
  /** Further testers, never trained; with the tester's tokenizer. Default: none. */
  otherTesters?: readonly ModelSource[];
  target: ModelSource;
  /** Further models under test. Default: none. */
  otherTargets?: readonly ModelSource[];
  scorer: Scorer;
  /** What a turn is worth. Default: the paper's reward over the scorer. */
  reward?: Reward;
  /** Says how alike found attacks are. Default: nothing, which leaves it to the evaluator. */
  embedder?: Embedder;
  generation?: GenerationOptions;
  /** Most bytes of key/value cache; past it the work is done in parts. Default: a quarter of the memory. */
  cacheBytes?: number;
  /** Told once for each role when a conversation outgrows its model's window. Default: a line on stderr. */
  log?: (message: string) => void;
}

/** The options of `HFSystemOptions`, by name: what is none of them is refused, the rest is checked where it is used. */
const OPTIONS = [
  "tester",
  "otherTesters",
  "target",
  "otherTargets",
  "scorer",
  "reward",
  "embedder",
  "generation",
  "cacheBytes",
  "log",
  "device",
  "testerDevice",
  "targetDevice",
  "baselineDevice",
  "inferenceDtype",
  "updateDtype",
  "testerTokenizer",
  "targetTokenizer",
  "hub",
] as const satisfies readonly (keyof HFSystemOptions)[];

/**
 * The options of a system on checkpoints, and those of them that are any system's.
 *
 * @param more names of further options
 * @throws UsageError for an option that there is not, and for a missing tester, target or scorer
 */
export function checkHFOptions<T extends HFSystemOptions>(
  where: string,
  given: T,
  more: readonly (keyof T & string)[] = [],
): ASTSystemOptions {
  const example = "write { tester, target, scorer }, in which tester and target are checkpoints";
  if (typeof given !== "object" || given === null) {
    throw new UsageError(`${where}.load: takes one object, got ${describeValue(given)}; ${example}`);
  }
  const names = [...OPTIONS, ...more].map((name) => [name, z.any().optional()] as const);
  const schema = z.strictObject({ ...Object.fromEntries(names), ...systemOptions.shape });
  parseOptions(`${where}.load`, schema, given, {
    model: example,
    testerModel: "write tester",
    targetModel: "write target",
    dtype: "write inferenceDtype, or updateDtype",
  });
  for (const name of ["tester", "target", "scorer"] as const) {
    if (given[name] !== undefined && given[name] !== null) continue;
    throw new UsageError(`${where}.load: ${name} is missing; ${example}`);
  }
  const own = Object.keys(systemOptions.shape) as (keyof ASTSystemOptions)[];
  return Object.fromEntries(own.map((name) => [name, given[name]]));
}

/** What the models of one system share, and what makes them. */
export class ModelFactory {
  readonly #shared;
  readonly #generation: GenerationOptions;

  constructor(
    shelf: ModelShelf,
    {
      generation = {},
      cacheBytes = defaultCacheBytes(),
      log = (message) => console.error(message),
    }: HFSystemOptions,
  ) {
    this.#generation = generation;
    this.#shared = {
      cacheBudget: new CacheBudget(cacheBytes),
      onTruncate: log,
      onDispose: () => shelf.dispose(),
    };
  }

  /** How a role's model is made; the baseline never speaks, and reads as the tester does. */
  options(role: "tester" | "target" | "baseline") {
    const chosen = this.#generation[role === "target" ? "target" : "tester"];
    return { ...this.#shared, sampling: { ...DEFAULT_SAMPLING, ...chosen } };
  }

  /** @param number of the model among several in the role, from 1 */
  model(
    role: "tester" | "target" | "baseline",
    { model, tokenizer }: LoadedCausalLM,
    number = 1,
  ): LocalModel {
    const name = number === 1 ? role : `${role}-${number}`;
    const own = role === "target" ? "target" : "tester";
    return new LocalModel(name, { ...this.options(role), role: own, tokenizer, model: () => model });
  }

  /** The further models of a role, frozen. */
  async others(
    role: "tester" | "target",
    shelf: ModelShelf,
    sources: readonly ModelSource[] = [],
  ): Promise<LocalModel[]> {
    const models: LocalModel[] = [];
    for (const [at, source] of sources.entries()) {
      const loaded = await shelf.frozen(role, source);
      models.push(this.model(role, loaded, at + 2));
    }
    return models;
  }
}

/** A quarter of what this process may use: beside weights, gradients and optimizer state there is room for it. */
function defaultCacheBytes(): number {
  // 0 or an absurdly large number where nothing constrains the process.
  const constrained = process.constrainedMemory();
  return Math.min(totalmem(), constrained > 0 ? constrained : Infinity) / 4;
}
