import { totalmem } from "node:os";
import { CacheBudget, type CausalLM, type Sampling, type ScoredRow, type Tokenizer } from "@astra-rl/lm";
import {
  likelihoodOf,
  TokenTable,
  type ExpandRequest,
  type Growth,
  type Likelihood,
  type NodeKey,
  type Outcome,
  type Scorer,
  type Sources,
  type WorkCounters,
} from "../core/index.js";
import { ASTSystem, type ASTSystemOptions } from "./ast-system.js";
import { HFGrowth } from "./hf-growth.js";
import { ModelRole, type ModelRoleOptions } from "./model-role.js";
import { tokenizersAgree } from "./tokenizers-agree.js";
import { turnTokens } from "./turn-tokens.js";

/** How each role speaks; what is not given is `DEFAULT_SAMPLING`. */
export interface GenerationOptions {
  tester?: Partial<Sampling>;
  target?: Partial<Sampling>;
}

/** The Python toolbox's settings. */
export const DEFAULT_SAMPLING: Readonly<Sampling> = { maxNewTokens: 32, temperature: 1, topK: 50, topP: 0.9 };

export interface LanguageModelSystemOptions extends ASTSystemOptions {
  generation?: GenerationOptions;
  /** Most bytes of key/value cache; past it the work is done in parts. Default: a quarter of the memory. */
  cacheBytes?: number;
  /** Told once for each role when a conversation outgrows its model's window. Default: a line on stderr. */
  log?: (message: string) => void;
}

/** The models of a system; each is frozen here and owned by whoever made it. */
export interface SystemModels {
  /** Its model is asked for at each use, since the weights that speak may move to another copy. */
  tester: { readonly tokenizer: Tokenizer; readonly model: CausalLM };
  target: { readonly tokenizer: Tokenizer; readonly model: CausalLM };
  /** The target's weights are also those of the tester's baseline. */
  targetIsBaseline: boolean;
}

/**
 * An AST system whose tester and target are causal language models. It rolls out and reads; what can be trained is its
 * subclasses' matter.
 *
 * Models with different tokenizers exchange text: each keeps its own ids of the whole conversation, and an utterance
 * is encoded once, for the model that did not speak it.
 */
export abstract class LanguageModelSystem extends ASTSystem {
  readonly tester: ModelRole;
  readonly target: ModelRole;
  readonly sharedTokens: boolean;
  readonly targetIsBaseline: boolean;
  /** What the roles of this system share. */
  protected readonly roleOptions: Pick<ModelRoleOptions, "cacheBudget" | "onTruncate">;

  constructor(scorer: Scorer, models: SystemModels, options: LanguageModelSystemOptions = {}) {
    super(scorer, options);
    const {
      generation = {},
      cacheBytes = defaultCacheBytes(),
      log = (message) => console.error(message),
    } = options;
    this.roleOptions = { cacheBudget: new CacheBudget(cacheBytes), onTruncate: log };
    const { tester, target } = models;
    this.tester = new ModelRole("tester", {
      ...this.roleOptions,
      tokenizer: tester.tokenizer,
      model: () => tester.model,
      sampling: { ...DEFAULT_SAMPLING, ...generation.tester },
    });
    this.target = new ModelRole("target", {
      ...this.roleOptions,
      tokenizer: target.tokenizer,
      model: () => target.model,
      sampling: { ...DEFAULT_SAMPLING, ...generation.target },
    });
    this.sharedTokens = tokenizersAgree(tester.tokenizer, target.tokenizer);
    this.targetIsBaseline = models.targetIsBaseline;
  }

  override openGrowth(): Growth {
    return new HFGrowth(this);
  }

  override async expand(requests: readonly ExpandRequest[]): Promise<Outcome[]> {
    const growth = this.openGrowth();
    try {
      return await growth.expand(requests);
    } finally {
      growth.close();
    }
  }

  override rolloutPromptWithTester(
    contexts: readonly string[],
    keys?: readonly NodeKey[],
  ): Promise<string[]> {
    return Promise.resolve(utter(this.tester, contexts, keys));
  }

  override rolloutPromptWithTarget(prompts: readonly string[], keys?: readonly NodeKey[]): Promise<string[]> {
    return Promise.resolve(utter(this.target, prompts, keys));
  }

  override getTargetLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const rows = this.#targetLogprobs(contexts, continuations, sources);
    return Promise.resolve(TokenTable.ofRows(rows, this.tester.model.device));
  }

  override likelihood(
    contexts: readonly string[],
    probes: readonly string[],
    sources?: Sources,
  ): Promise<Likelihood[]> {
    return Promise.resolve(this.#targetLogprobs(contexts, probes, sources).map(likelihoodOf));
  }

  override counters(): WorkCounters {
    return { tester: this.tester.work, target: this.target.work };
  }

  /** Ids of contexts and probes on the tester's side: those that were sampled where the nodes are known. */
  protected testerRows(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): ScoredRow[] {
    return turnTokens(this, contexts, continuations, sources).map((tokens, row) =>
      tokens === null
        ? encoded(this.tester, contexts[row]!, continuations[row]!)
        : { context: tokens.testerContext, continuation: tokens.probe.sampled },
    );
  }

  #targetLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): number[][] {
    const recorded = turnTokens(this, contexts, continuations, sources);
    const missing = recorded.flatMap((tokens, row) => (tokens === null ? [row] : []));
    const scored = this.target.score(
      missing.map((row) => encoded(this.target, contexts[row]!, continuations[row]!)),
    );
    return recorded.map((tokens, row) => [...(tokens?.targetLogprobs ?? scored[missing.indexOf(row)]!)]);
  }
}

function encoded({ tokenizer }: ModelRole, context: string, continuation: string): ScoredRow {
  return { context: tokenizer.encode(context), continuation: tokenizer.encode(continuation) };
}

function utter(role: ModelRole, prompts: readonly string[], keys?: readonly NodeKey[]): string[] {
  if (prompts.length === 0) return [];
  const session = role.open(prompts.map((prompt) => role.tokenizer.encode(prompt)));
  try {
    const named = keys ?? prompts.map((_, node) => ({ seed: 0, episode: 0, node }));
    return role.speak(session, named).map(({ text }) => text);
  } finally {
    session.dispose();
  }
}

/** A quarter of what this process may use: beside weights, gradients and optimizer state there is room for it. */
function defaultCacheBytes(): number {
  // 0 or an absurdly large number where nothing constrains the process.
  const constrained = process.constrainedMemory();
  return Math.min(totalmem(), constrained > 0 ? constrained : Infinity) / 4;
}
