import { Conversation, conversationOf, messageOf, type Message } from "@astra-rl/lm";
import { isGradEnabled } from "@astra-rl/torch";
import {
  checkCount,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkTable,
  drawingAs,
  nextKeys,
  type NodeKey,
  type ResponseOf,
  type TableRules,
  type TokenTable,
} from "../tree/index.js";
import type { TesterOutput, TesterWants } from "../models/index.js";
import type { MessageOrText } from "./message-or-text.js";
import { requireNeeds } from "./require-needs.js";
import type { System, ValueFunctionSystem } from "./system.js";

/**
 * The methods of a system as samplers and algorithms call them (`system.checked`): every result is checked, and texts
 * become messages. A wrong shape or a missing gradient would not stop training but silently train something else.
 *
 * @throws ContractError in every method, for a result that the system's interface forbids
 */
export class CheckedSystem<S = Conversation, A = Message> {
  readonly #system: System<S, A>;
  /** Device of the first table: of all others as well. */
  #device: string | null = null;

  constructor(system: System<S, A>) {
    this.#system = system;
  }

  rolloutPromptWithTester(contexts: readonly S[], keys?: readonly NodeKey[]): Promise<A[]> {
    return this.#generated("tester", "rolloutPromptWithTester", contexts, keys);
  }

  rolloutPromptWithTarget(prompts: readonly S[], keys?: readonly NodeKey[]): Promise<ResponseOf<S>[]> {
    return this.#generated("target", "rolloutPromptWithTarget", prompts, keys);
  }

  /** Without the goal, which no target reads. */
  promptForTarget(context: S, probe: A): S {
    const prompt = this.#system.promptForTarget(context, probe);
    if (!isConversation(context)) return prompt as S;
    return conversationOf("System.promptForTarget", prompt, context, [probe as Message]).withGoal(null) as S;
  }

  advance(context: S, probe: A, response: ResponseOf<S>): S {
    const next = this.#system.advance(context, probe, response);
    if (!isConversation(context)) return next as S;
    return conversationOf("System.advance", next, context, [probe, response] as Message[]) as S;
  }

  emptyResponse(context: S): ResponseOf<S> {
    const response = this.#system.emptyResponse();
    if (!isConversation(context)) return response as ResponseOf<S>;
    return messageOf("System.emptyResponse", response, "target") as ResponseOf<S>;
  }

  getTesterLogprobs(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#table("getTesterLogprobs", contexts, continuations);
  }

  getBaselineLogprobs(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#table("getBaselineLogprobs", contexts, continuations);
  }

  getTargetLogprobs(
    contexts: readonly S[],
    continuations: readonly A[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    return this.#table("getTargetLogprobs", contexts, continuations, keys);
  }

  /** @throws UsageError if values are requested from a system without them */
  async getTesterOutput(
    contexts: readonly S[],
    continuations: readonly A[],
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    const where = "System.getTesterOutput";
    checkPaired(where, contexts, continuations);
    if (want.values === true) requireNeeds(this.#system, ["values"], where);
    const output = await this.#system.getTesterOutput(contexts, continuations, want);
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

  /** @throws UsageError for a system without values */
  value(contexts: readonly S[], continuations: readonly A[]): Promise<TokenTable> {
    return this.#table("value", contexts, continuations);
  }

  async reward(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly ResponseOf<S>[],
    keys: readonly NodeKey[] = nextKeys(contexts.length),
  ): Promise<number[]> {
    checkPaired("System.reward", contexts, probes);
    checkPaired("System.reward", contexts, responses);
    const rewards = await this.#system.reward(contexts, probes, responses, keys);
    checkRewards("System.reward", rewards, contexts.length);
    return rewards;
  }

  #generated<T extends A | ResponseOf<S>>(
    role: "tester" | "target",
    method: "rolloutPromptWithTester" | "rolloutPromptWithTarget",
    states: readonly S[],
    keys: readonly NodeKey[] = nextKeys(states.length),
  ): Promise<T[]> {
    const where = `System.${method}`;
    return drawingAs(keys, async () => {
      const read = role === "tester" ? states : states.map(withoutGoal);
      const generated: readonly MessageOrText<A | ResponseOf<S>>[] = await this.#system[method](read, keys);
      checkCount(where, generated, states.length);
      return generated.map((each, row) => {
        return (isConversation(states[row]) ? messageOf(where, each, role) : each) as T;
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
    if (isValue) requireNeeds(this.#system, ["values"], where);
    const system = this.#system as ValueFunctionSystem<S, A>;
    const table = await system[method](contexts, continuations, keys);
    const rules = this.#rules(contexts, isValue || method === "getTesterLogprobs" ? trained() : false);
    checkTable(where, table, { ...rules, numbers: isValue ? "values" : "logprobs" });
    this.#device ??= table.values.device;
    return table;
  }

  #rules({ length: batch }: readonly S[], gradient: boolean | null): TableRules {
    return { batch, gradient, device: this.#device };
  }
}

/** Whether results under the trained weights must carry a gradient; not checked where gradients are disabled. */
const trained = () => (isGradEnabled() ? true : null);

const withoutGoal = <S>(state: S): S => (isConversation(state) ? (state.withGoal(null) as S) : state);

/** Whether a state is a conversation, so that texts are converted. */
const isConversation = (state: unknown): state is Conversation => state instanceof Conversation;
