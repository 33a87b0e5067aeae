import { Conversation, conversationOf, messageOf, type Message } from "@astra-rl/lm";
import { isGradEnabled, type Tensor } from "@astra-rl/torch";
import {
  checkCount,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkTable,
  drawingAs,
  nextKeys,
  attemptRows,
  Stateless,
  overrides,
  type TableRules,
  type NodeKey,
  type RetryOptions,
  type Graph,
  type Assessment,
  type ResponseOf,
  type TokenTable,
} from "../tree/index.js";
import { saidAt } from "../tree/draw.js";
import type { TesterOutput, TesterWants, WorkCounters } from "../models/index.js";
import { loadParameters, saveParameters } from "./parameters-file.js";
import type { PromptOf, MessageOrText } from "./message-or-text.js";
import { requireNeeds } from "./require-needs.js";

/** Optional capabilities of a system that an algorithm may require. */
export type SystemNeed = "baseline" | "values" | "entropy";

/**
 * Models, tokenization, rollout, log-probabilities and reward behind one interface.
 *
 * Implement the abstract methods. Callers use the `…AndValidate` variants, which check every result: a wrong shape or a
 * missing gradient would not stop training but silently train something else.
 *
 * S is the type of states, A the type of probes. For language models these are Conversation and Message, responses are
 * Messages, and methods may return plain texts, which the `…AndValidate` variants convert (see `MessageOrText`). For other
 * systems a response is a state. `getState` returns the system's state between experiences, except weights.
 */
export abstract class System<S = Conversation, A = Message> extends Stateless {
  /** Retry policy of failing target calls before the failure is recorded. */
  retry: RetryOptions = {};
  #device: string | null = null;

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
    const logprobs = await this.getTesterLogprobsAndValidate(contexts, continuations);
    if (want.values !== true || !hasValues(this)) return { logprobs };
    return { logprobs, values: await this.valueAndValidate(contexts, continuations) };
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
        this.rewardAndValidate(
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

  rolloutPromptWithTesterAndValidate(contexts: readonly S[], keys?: readonly NodeKey[]): Promise<A[]> {
    return this.#said("tester", "rolloutPromptWithTester", contexts, keys);
  }

  rolloutPromptWithTargetAndValidate(
    prompts: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<ResponseOf<S>[]> {
    return this.#said("target", "rolloutPromptWithTarget", prompts, keys);
  }

  /** Result of `promptForTarget`, converted from text. */
  promptForTargetAndValidate(context: S, probe: A): S {
    const prompt = this.promptForTarget(context, probe);
    if (!isConversation(context)) return prompt as S;
    return conversationOf("System.promptForTarget", prompt, context, [probe as Message]) as S;
  }

  /** Result of `advance`, converted from text. */
  advanceAndValidate(context: S, probe: A, response: ResponseOf<S>): S {
    const next = this.advance(context, probe, response);
    if (!isConversation(context)) return next as S;
    return conversationOf("System.advance", next, context, [probe, response] as Message[]) as S;
  }

  /** Result of `emptyResponse`, converted from text. */
  emptyResponseAndValidate(context: S): ResponseOf<S> {
    const response = this.emptyResponse();
    if (!isConversation(context)) return response as ResponseOf<S>;
    return messageOf("System.emptyResponse", response, "target") as ResponseOf<S>;
  }

  getTesterLogprobsAndValidate(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#table("getTesterLogprobs", contexts, continuations);
  }

  getBaselineLogprobsAndValidate(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#table("getBaselineLogprobs", contexts, continuations);
  }

  getTargetLogprobsAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    return this.#table("getTargetLogprobs", contexts, continuations, keys);
  }

  /** @throws UsageError if values are requested from a system without them */
  async getTesterOutputAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    const where = "System.getTesterOutput";
    checkPaired(where, contexts, continuations);
    if (want.values === true) requireNeeds(this, ["values"], where);
    const output = await this.getTesterOutput(contexts, continuations, want);
    const { logprobs, values, entropy } = output;
    const rules = this.#rules(contexts, trained());
    checkTable(where, logprobs, { ...rules, numbers: "logprobs" });
    if (want.values === true) {
      checkTable(`${where}: values`, values, rules);
      checkSameTokens(`${where}: values`, values, logprobs);
    }
    if (want.entropy === true && entropy !== undefined) {
      checkTable(`${where}: entropy`, entropy, { ...rules, numbers: "entropy" });
      checkSameTokens(`${where}: entropy`, entropy, logprobs);
    }
    this.#device ??= logprobs.values.device;
    return output;
  }

  /** Checked result of `value`. @throws UsageError for a system without values */
  valueAndValidate(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#table("value", contexts, continuations);
  }

  async rewardAndValidate(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly ResponseOf<S>[],
    keys: readonly NodeKey[] = nextKeys(contexts.length),
  ): Promise<number[]> {
    checkPaired("System.reward", contexts, probes);
    checkPaired("System.reward", contexts, responses);
    const rewards = await this.reward(contexts, probes, responses, keys);
    checkRewards("System.reward", rewards, contexts.length);
    return rewards;
  }

  /** Generated messages, converted from text where states are conversations. */
  #said<T extends A | ResponseOf<S>>(
    role: "tester" | "target",
    method: "rolloutPromptWithTester" | "rolloutPromptWithTarget",
    states: readonly S[],
    keys: readonly NodeKey[] = nextKeys(states.length),
  ): Promise<T[]> {
    const where = `System.${method}`;
    return drawingAs(keys, async () => {
      const said: readonly unknown[] = await this[method](states, keys);
      checkCount(where, said, states.length);
      return said.map((each, row) => {
        return (isConversation(states[row]) ? messageOf(where, each, role, saidAt(keys[row])) : each) as T;
      });
    });
  }

  async #table(
    method: "getTesterLogprobs" | "getBaselineLogprobs" | "getTargetLogprobs" | "value",
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    const where = `System.${method}`;
    checkPaired(where, contexts, continuations);
    const isValue = method === "value";
    if (isValue) requireNeeds(this, ["values"], where);
    const table = await (this as unknown as ValueFunctionSystem<S, A>)[method](contexts, continuations, keys);
    const rules = this.#rules(contexts, isValue || method === "getTesterLogprobs" ? trained() : false);
    checkTable(where, table, { ...rules, numbers: isValue ? "values" : "logprobs" });
    this.#device ??= table.values.device;
    return table;
  }

  /** Rules for a table with these rows; the first result of any kind fixes the device for all. */
  #rules({ length: batch }: readonly S[], gradient: boolean | null): TableRules {
    return { batch, gradient, device: this.#device };
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

/** Whether results under the trained weights must carry a gradient; not checked where gradients are disabled. */
const trained = () => (isGradEnabled() ? true : null);

/** Whether a state is a conversation, so that texts are converted. */
const isConversation = (state: unknown): state is Conversation => state instanceof Conversation;
