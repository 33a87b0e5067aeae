import {
  checkCount,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkTable,
  type TableRules,
} from "./checks.js";
import { drawingAs, saidAt, type NodeKey } from "./draw.js";
import { attemptRows, type RetryOptions } from "./failure.js";
import type { Graph } from "./graph.js";
import type { TesterOutput, TesterWants, WorkCounters } from "./model.js";
import type { Assessment, ResponseOf } from "./node.js";
import { Stateless } from "./state.js";
import type { TokenTable } from "./token-table.js";
import { Conversation, conversationOf, messageOf, type Message } from "@astra-rl/lm";
import { isGradEnabled, UsageError, type Tensor } from "@astra-rl/torch";

/** What a method may return: a text stands for the message or the conversation that it says. */
export type Returned<T> = T extends Conversation | Message ? T | string : T;

/** What a sampler may begin with: a text stands for the conversation that it begins. */
export type PromptOf<S> = S extends Conversation ? S | string : S;

/** What an algorithm may need of a system that not every system can tell. */
export type SystemNeed = "baseline" | "values" | "entropy";

/**
 * Models, tokenisation, rollout, log-probabilities and reward behind one interface.
 *
 * Implement the abstract methods. Callers use the `…AndValidate` twins, which check every result every time:
 * a wrong shape or a missing gradient does not stop training, it silently trains something else.
 *
 * S is the type of states, A the type of probes. In conversations of language models they are Conversation and Message, and
 * methods may return plain texts, which are made values once, by the twins: see `Returned`. A response is a Message there, and
 * a state elsewhere. `getState` is what the system remembers between experiences beside weights.
 */
export abstract class System<S = Conversation, A = Message> extends Stateless {
  /** How failing calls to the target are repeated before they become data. */
  retry: RetryOptions = {};
  #device: string | null = null;

  /**
   * One probe for each context.
   *
   * @param keys name the random draws of each row; a call without them takes the next draws of the rows or the episode in
   * progress, so that the same call twice gives two answers (see `nextKeys`)
   */
  abstract rolloutPromptWithTester(
    contexts: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<readonly Returned<A>[]>;

  /** One response for each prompt, as `promptForTarget` made it. */
  abstract rolloutPromptWithTarget(
    prompts: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<readonly Returned<ResponseOf<S>>[]>;

  /**
   * log P_tester of each continuation token after its context, with a gradient into `parameters()`.
   */
  abstract getTesterLogprobs(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable>;

  /**
   * log P of each continuation token under the tester that sampled it, as its rollout recorded it, over the whole vocabulary
   * and at temperature 1; null for a continuation of which nothing was recorded. The default knows none.
   */
  getRecordedLogprobs(contexts: readonly S[], _continuations: readonly A[]): (readonly number[] | null)[] {
    return contexts.map(() => null);
  }

  /**
   * `getTesterLogprobs`, and what else is wanted of the same tokens: values where the system tells them (see
   * `hasValues`), entropy where it can. The default asks `getTesterLogprobs` and `value`, one after the other, and can
   * tell no entropy; a system that reads once for all of it overrides this.
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

  /** As `getTesterLogprobs`, under the frozen baseline; no gradient. */
  abstract getBaselineLogprobs(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable>;

  /**
   * As `getTesterLogprobs`, under the target, in the target's tokens; no gradient.
   *
   * @param keys the nodes that the rows belong to, while they grow
   */
  abstract getTargetLogprobs(
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable>;

  /**
   * One reward for each turn; throws when one cannot be had.
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
  abstract advance(context: S, probe: A, response: ResponseOf<S>): Returned<S>;

  /** What the target reads before it responds. */
  abstract promptForTarget(context: S, probe: A): Returned<S>;

  /** The tensors that training changes: every trainable one, a value head included. */
  abstract parameters(): Iterable<Tensor>;

  /** Those of `parameters()` that only values rest on; an algorithm may train them at a rate of their own. */
  valueParameters(): Iterable<Tensor> {
    return [];
  }

  /** Why the system cannot tell what an algorithm needs, and what to do, as the end of a sentence; null: it can. */
  lacks(need: SystemNeed): string | null {
    if (need === "entropy") {
      return this.getTesterOutput === System.prototype.getTesterOutput ? ENTROPY_UNKNOWN : null;
    }
    if (need !== "values" || hasValues(this)) return null;
    return (
      "tells no values; load an HFASTSystem with valueHead: true, give an ASTSystem a tester with a value head, or write a " +
      "method value (see ValueFunctionSystem)"
    );
  }

  /** Called after each optimizer step: refresh whatever was copied from the tester's weights. */
  async testerUpdated(): Promise<void> {}

  /**
   * Told of finished training graphs in episode order, once for each experience: for rewards that remember what was
   * tried.
   */
  async observe(_graphs: readonly Graph<S, A>[]): Promise<void> {}

  /** Work done so far; empty for a system that does not count. */
  counters(): WorkCounters {
    return {};
  }

  /** Frees models and caches. The system is unusable afterwards. */
  dispose(): void {}

  /** Frees what models keep to be faster. Called at the end of every rollout. */
  release(): void {}

  /** The state that a prompt stands for: a conversation for a text, where states are conversations. */
  stateOf(prompt: PromptOf<S>): S {
    return prompt as S;
  }

  /**
   * By role, which of several models takes part in the episode that a key belongs to: recorded with its graph. Empty for
   * a system of one model for each role.
   */
  modelsAt(_key: NodeKey): Readonly<Record<string, string>> {
    return {};
  }

  /** Stands in for the response of a target call that failed. Systems whose states are not texts override it. */
  emptyResponse(): Returned<ResponseOf<S>> {
    return "" as Returned<ResponseOf<S>>;
  }

  /**
   * What each turn was worth, with failures as data. The default asks `reward` for all turns at once and, when
   * that keeps failing, turn by turn.
   *
   * @param keys name the turns, and say what they are grown for
   */
  async assess(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly ResponseOf<S>[],
    keys?: readonly NodeKey[],
  ): Promise<Assessment[]> {
    const results = await attemptRows(
      "scorer",
      contexts.length,
      (rows) =>
        this.rewardAndValidate(
          rows.map((row) => contexts[row]!),
          rows.map((row) => probes[row]!),
          rows.map((row) => responses[row]!),
          keys && rows.map((row) => keys[row]!),
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

  /** What `promptForTarget` returned, as a value. */
  promptForTargetAndValidate(context: S, probe: A): S {
    const prompt = this.promptForTarget(context, probe);
    if (!isTalk(context)) return prompt as S;
    return conversationOf("System.promptForTarget", prompt, context, [probe as Message]) as S;
  }

  /** What `advance` returned, as a value. */
  advanceAndValidate(context: S, probe: A, response: ResponseOf<S>): S {
    const next = this.advance(context, probe, response);
    if (!isTalk(context)) return next as S;
    return conversationOf("System.advance", next, context, [probe, response] as Message[]) as S;
  }

  /** What `emptyResponse` returned, as a value. */
  emptyResponseAndValidate(context: S): ResponseOf<S> {
    const response = this.emptyResponse();
    if (!isTalk(context)) return response as ResponseOf<S>;
    return messageOf("System.emptyResponse", response, "target") as ResponseOf<S>;
  }

  getTesterLogprobsAndValidate(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#logprobs("getTesterLogprobs", contexts, continuations);
  }

  getBaselineLogprobsAndValidate(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#logprobs("getBaselineLogprobs", contexts, continuations);
  }

  getTargetLogprobsAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    return this.#logprobs("getTargetLogprobs", contexts, continuations, keys);
  }

  /** @throws UsageError where values are wanted of a system that tells none */
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

  /** What `value` says, checked. @throws UsageError for a system that tells no values */
  async valueAndValidate(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    const where = "System.value";
    checkPaired(where, contexts, continuations);
    requireNeeds(this, ["values"], where);
    const values = await (this as unknown as ValueFunctionSystem<S, A>).value(contexts, continuations);
    checkTable(where, values, this.#rules(contexts, trained()));
    this.#device ??= values.values.device;
    return values;
  }

  async rewardAndValidate(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly ResponseOf<S>[],
    keys?: readonly NodeKey[],
  ): Promise<number[]> {
    checkPaired("System.reward", contexts, probes);
    checkPaired("System.reward", contexts, responses);
    const rewards = await this.reward(contexts, probes, responses, keys);
    checkRewards("System.reward", rewards, contexts.length);
    return rewards;
  }

  /** What models said, as values where states are conversations. */
  #said<T extends A | ResponseOf<S>>(
    role: "tester" | "target",
    method: "rolloutPromptWithTester" | "rolloutPromptWithTarget",
    states: readonly S[],
    keys: readonly NodeKey[] | undefined,
  ): Promise<T[]> {
    const where = `System.${method}`;
    return drawingAs(keys, async () => {
      const said: readonly unknown[] = await this[method](states, keys);
      checkCount(where, said, states.length);
      return said.map((each, row) => {
        return (isTalk(states[row]) ? messageOf(where, each, role, saidAt(keys?.[row])) : each) as T;
      });
    });
  }

  async #logprobs(
    method: "getTesterLogprobs" | "getBaselineLogprobs" | "getTargetLogprobs",
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    const where = `System.${method}`;
    checkPaired(where, contexts, continuations);
    const logprobs = await this[method](contexts, continuations, keys);
    const rules = this.#rules(contexts, method === "getTesterLogprobs" ? trained() : false);
    checkTable(where, logprobs, { ...rules, numbers: "logprobs" });
    this.#device ??= logprobs.values.device;
    return logprobs;
  }

  /** Rules for a table of such rows; the first result of any kind fixes the device of all. */
  #rules({ length: batch }: readonly S[], gradient: boolean | null): TableRules {
    return { batch, gradient, device: this.#device };
  }
}

/** A system that also says how good each token of a continuation is, for actor-critic algorithms. */
export abstract class ValueFunctionSystem<S = Conversation, A = Message> extends System<S, A> {
  /**
   * Value of each continuation token, aligned with `getTesterLogprobs`, with a gradient. Position t is the value of the
   * state in which token t is chosen, so the value after the last token is not included.
   */
  abstract value(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable>;
}

/**
 * Whether a system says how good each token of a continuation is, whatever class it is of: it has a method `value`, and
 * does not say otherwise by `tellsValues`, as systems do whose models have value heads or not.
 */
export function hasValues<S, A>(system: System<S, A>): system is ValueFunctionSystem<S, A> {
  const { value, tellsValues = true } = system as { value?: unknown; tellsValues?: boolean };
  return typeof value === "function" && tellsValues;
}

/**
 * Refuses a system that cannot tell what is needed of it.
 *
 * @param who needs it; begins the message
 * @throws UsageError with the reason and what to do
 */
export function requireNeeds<S, A>(system: System<S, A>, needs: readonly SystemNeed[], who: string): void {
  for (const need of needs) {
    const reason = system.lacks(need);
    if (reason !== null)
      throw new UsageError(`${who} needs ${NEEDED[need]}, but ${system.constructor.name} ${reason}`);
  }
}

const NEEDED: Readonly<Record<SystemNeed, string>> = {
  baseline: "a baseline",
  values: "a system that tells values",
  entropy: "the entropy of the tester",
};

/** See `System.lacks`: said of a system whose `getTesterOutput` gives no entropy. */
export const ENTROPY_UNKNOWN =
  "cannot tell it; set entropyCoefficient to 0, or give `entropy` in getTesterOutput";

/** Whether results under the trained weights must carry a gradient: where gradients are off, nothing will ask. */
const trained = () => (isGradEnabled() ? true : null);

/** Whether a state is a conversation, so that texts stand for values. */
const isTalk = (state: unknown): state is Conversation => state instanceof Conversation;
