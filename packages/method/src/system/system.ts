import type { Conversation, Message } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";
import {
  nextKeys,
  attemptRows,
  Stateless,
  overrides,
  type NodeKey,
  type RetryOptions,
  type Graph,
  type Assessment,
  type ResponseOf,
  type TokenTable,
} from "../tree/index.js";
import type { TesterOutput, TesterWants, WorkCounters } from "../models/index.js";
import { CheckedSystem } from "./checked-system.js";
import { loadParameters, saveParameters } from "./parameters-file.js";
import type { PromptOf, MessageOrText } from "./message-or-text.js";

/** Optional capabilities of a system that an algorithm may require. */
export type SystemNeed = "baseline" | "values" | "entropy";

/**
 * Models, tokenization, rollout, log-probabilities and reward behind one interface.
 *
 * Implement the abstract methods. Samplers and algorithms call them through `checked`, which checks every result.
 *
 * S is the type of states, A the type of probes. For language models these are Conversation and Message, responses are
 * Messages, and methods may return plain texts, each of which becomes a new message (see `MessageOrText`). For other
 * systems a response is a state. `getState` returns the system's state between experiences, except weights.
 */
export abstract class System<S = Conversation, A = Message> extends Stateless {
  /** Retry policy of failing target calls before the failure is recorded. */
  retry: RetryOptions = {};
  /** The same methods with every result checked, for samplers and algorithms. */
  readonly checked: CheckedSystem<S, A> = new CheckedSystem<S, A>(this);

  /**
   * One probe for each context.
   *
   * @param keys key of each row's random draws; without keys, a call takes the next draws of the rows or episode in
   * progress, so that repeated calls give different results (see `nextKeys`)
   */
  abstract rolloutPromptWithTester(
    contexts: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<readonly MessageOrText<A>[]>;

  /** One response for each prompt made by `promptForTarget`. */
  abstract rolloutPromptWithTarget(
    prompts: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<readonly MessageOrText<ResponseOf<S>>[]>;

  /** log P_tester of each continuation token after its context, with a gradient into `parameters()`. */
  abstract getTesterLogprobs(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable>;

  /**
   * log P of each continuation token under the tester that sampled it, as recorded during rollout, over the full
   * vocabulary at temperature 1; null for a continuation without a record. The default has no records.
   */
  getRecordedLogprobs(contexts: readonly S[], _continuations: readonly A[]): (readonly number[] | null)[] {
    return contexts.map(() => null);
  }

  /**
   * `getTesterLogprobs` plus other requested outputs for the same tokens: values (see `hasValues`) and entropy, where
   * available. The default calls `getTesterLogprobs`, then `value`, and has no entropy; override it to compute
   * everything in one forward pass.
   */
  async getTesterOutput(
    contexts: readonly S[],
    continuations: readonly A[],
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    const logprobs = await this.checked.getTesterLogprobs(contexts, continuations);
    if (want.values !== true || !hasValues(this)) return { logprobs };
    return { logprobs, values: await this.checked.value(contexts, continuations) };
  }

  /** As `getTesterLogprobs`, under the frozen baseline, without a gradient. */
  abstract getBaselineLogprobs(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable>;

  /**
   * As `getTesterLogprobs`, under the target and in the target's tokens, without a gradient.
   *
   * @param keys the nodes that the rows belong to, while they grow
   */
  abstract getTargetLogprobs(
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable>;

  /**
   * One reward for each turn; throws if any cannot be computed.
   *
   * @param keys the nodes that the turns belong to, while they grow
   */
  abstract reward(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly ResponseOf<S>[],
    keys?: readonly NodeKey[],
  ): Promise<number[]>;

  /** The state after a turn. */
  abstract advance(context: S, probe: A, response: ResponseOf<S>): MessageOrText<S>;

  /** The state that the target responds to. */
  abstract promptForTarget(context: S, probe: A): MessageOrText<S>;

  /** All trainable tensors, including a value head's. */
  abstract parameters(): Iterable<Tensor>;

  /** The subset of `parameters()` that only the values depend on; an algorithm may give it a separate learning rate. */
  valueParameters(): Iterable<Tensor> {
    return [];
  }

  /** Why the system does not have a capability and what to do, as the end of a sentence; null if it has it. */
  missingCapability(need: SystemNeed): string | null {
    if (need === "entropy") {
      return this.getTesterOutput === System.prototype.getTesterOutput ? ENTROPY_UNKNOWN : null;
    }
    if (need !== "values" || hasValues(this)) return null;
    return (
      "provides no values; load an HFASTSystem with valueHead: true, give an ASTSystem a tester with a value " +
      "head, or write a " +
      "method value (see ValueFunctionSystem)"
    );
  }

  /** Whether `saveTester` writes a tester in a specific format, which other tools may load; false for the default. */
  get storesTester(): boolean {
    return overrides(this, System.prototype, "saveTester");
  }

  /** Saves what is trained, to a folder that does not exist yet. Default: `parameters()`, for this system alone. */
  async saveTester(folder: string): Promise<void> {
    saveParameters(this.parameters(), folder);
  }

  /** Copies what `saveTester` wrote into the existing parameters, bit for bit. Override both or neither. */
  async restoreTester(folder: string): Promise<void> {
    loadParameters(this.parameters(), folder);
  }

  /** Called after each optimizer step, to refresh copies of the tester's weights. */
  async testerUpdated(): Promise<void> {}

  /**
   * Called once per experience with the finished training graphs in episode order, for rewards that remember earlier
   * probes.
   */
  async observe(_graphs: readonly Graph<S, A>[]): Promise<void> {}

  /** Tokens processed so far; empty for a system that does not count them. */
  counters(): WorkCounters {
    return {};
  }

  /** Frees models and caches. The system is unusable afterwards. */
  dispose(): void {}

  /** Frees the models' caches. Called at the end of every rollout. */
  release(): void {}

  /** Converts a prompt to a state: where states are conversations, a text becomes a conversation. */
  stateOf(prompt: PromptOf<S>): S {
    return prompt as S;
  }

  /**
   * Name of the model that takes part in a key's episode, by role, for roles with several models; recorded with the
   * graph. Empty if each role has one model.
   */
  modelsAt(_key: NodeKey): Readonly<Record<string, string>> {
    return {};
  }

  /** Placeholder response for a failed target call. Systems whose states are not texts override it. */
  emptyResponse(): MessageOrText<ResponseOf<S>> {
    return "" as MessageOrText<ResponseOf<S>>;
  }

  /**
   * Assessment of each turn, with failures as data. The default calls `reward` for all turns at once and, if that keeps
   * failing, turn by turn.
   *
   * @param keys identify the turns and their purpose
   */
  async assess(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly ResponseOf<S>[],
    keys: readonly NodeKey[] = nextKeys(contexts.length),
  ): Promise<Assessment[]> {
    const results = await attemptRows(
      "scorer",
      contexts.length,
      (rows) =>
        this.checked.reward(
          rows.map((row) => contexts[row]!),
          rows.map((row) => probes[row]!),
          rows.map((row) => responses[row]!),
          rows.map((row) => keys[row]!),
        ),
      this.retry,
    );
    return results.map(({ value: reward = NaN, failure }) => {
      return { reward, scores: {}, terms: {}, likelihood: null, failure };
    });
  }
}

/** A system with a value function over continuation tokens, for actor-critic algorithms. */
export abstract class ValueFunctionSystem<S = Conversation, A = Message> extends System<S, A> {
  /**
   * Value for each continuation token, aligned with `getTesterLogprobs`, with a gradient. Position t holds the value of
   * the state in which token t is chosen; the value after the last token is not included.
   */
  abstract value(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable>;
}

/**
 * Whether a system has a value function: a method `value`, and `hasValues` is not false.
 * Systems whose models may lack a value head use `hasValues`.
 */
export function hasValues<S, A>(system: System<S, A>): system is ValueFunctionSystem<S, A> {
  const { value, hasValues = true } = system as { value?: unknown; hasValues?: boolean };
  return typeof value === "function" && hasValues;
}

/** See `System.missingCapability`: reason for a system whose `getTesterOutput` returns no entropy. */
export const ENTROPY_UNKNOWN =
  "cannot compute it; set entropyCoefficient to 0, or give `entropy` in getTesterOutput";
