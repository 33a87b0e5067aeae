import { totalmem } from "node:os";
import { CacheBudget, LocalModel, type LoadedCausalLM, type Sampling } from "@astra-rl/lm";
import type { Embedder, Scorer } from "../core/index.js";
import type { ModelShelf, ModelShelfOptions, ModelSource } from "../models/index.js";
import type { Reward } from "../reward/index.js";
import type { ASTSystemOptions } from "./system-parts.js";

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
