import {
  checkCount,
  checkEntropy,
  checkLogprobs,
  checkPaired,
  checkRewards,
  checkSameTokens,
  checkValues,
  type TensorRules,
} from "./checks.js";
import type { NodeKey } from "./draw.js";
import { attempt, type Failure, type RetryOptions } from "./failure.js";
import type { Graph } from "./graph.js";
import type { Assessment, GrowthMemory, WorkCounters } from "./growth.js";
import type { Node } from "./node.js";
import type { TesterOutput, TesterWants } from "./roles.js";
import type { Json, Stateful } from "./state.js";
import type { TokenTable } from "./token-table.js";
import { isGradEnabled, UsageError, type Tensor } from "@astra-rl/torch";

/**
 * The nodes that (context, continuation) pairs came from; a node that is growing is named by its key. Undefined for a
 * pair that came from elsewhere.
 */
export type Sources<S = string, A = string> = readonly (Node<S, A> | NodeKey | undefined)[];

/** What an algorithm may need of a system that not every system can tell. */
export type SystemNeed = "baseline" | "values" | "entropy";

/**
 * Models, tokenisation, rollout, log-probabilities and reward behind one interface.
 *
 * Implement the abstract methods. Callers use the `…AndValidate` twins, which check every result every time:
 * a wrong shape or a missing gradient does not stop training, it silently trains something else.
 *
 * S is the type of states, contexts and responses, A the type of probes.
 */
export abstract class System<S = string, A = string> implements Stateful {
  /** How failing calls to the target are repeated before they become data. */
  retry: RetryOptions = {};
  #device: string | null = null;

  /**
   * One probe for each context.
   *
   * @param keys name the random draws of each row; without them the draws are those of seed 0, episode 0,
   * node = row
   */
  abstract rolloutPromptWithTester(contexts: readonly S[], keys?: readonly NodeKey[]): Promise<A[]>;

  /** One response for each prompt, as `promptForTarget` made it. */
  abstract rolloutPromptWithTarget(prompts: readonly S[], keys?: readonly NodeKey[]): Promise<S[]>;

  /**
   * log P_tester of each continuation token after its context, with a gradient into `parameters()`.
   */
  abstract getTesterLogprobs(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable>;

  /**
   * log P of each continuation token under the tester that sampled it, as its rollout recorded it, over the whole vocabulary
   * and at temperature 1; null for a continuation of which nothing was recorded. The default knows none.
   */
  getRecordedLogprobs(
    contexts: readonly S[],
    _continuations: readonly A[],
    _sources?: Sources<S, A>,
  ): (readonly number[] | null)[] {
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
    sources?: Sources<S, A>,
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    const logprobs = await this.getTesterLogprobsAndValidate(contexts, continuations, sources);
    if (want.values !== true || !hasValues(this)) return { logprobs };
    return { logprobs, values: await this.valueAndValidate(contexts, continuations, sources) };
  }

  /** As `getTesterLogprobs`, under the frozen baseline; no gradient. */
  abstract getBaselineLogprobs(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable>;

  /** As `getTesterLogprobs`, under the target, in the target's tokens; no gradient. */
  abstract getTargetLogprobs(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable>;

  /**
   * One reward for each turn; throws when one cannot be had.
   *
   * @param keys the nodes that the turns belong to, while they grow
   */
  abstract reward(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<number[]>;

  /** The state after a turn. */
  abstract advance(context: S, probe: A, response: S): S;

  /** What the target reads before it responds. */
  abstract promptForTarget(context: S, probe: A): S;

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

  /** What the system remembers between experiences beside weights; null for nothing. */
  getState(): Json {
    return null;
  }

  /** Goes on where `getState` was called. */
  setState(state: Json): void {
    if (state === null) return;
    throw new UsageError("System.setState: this system remembers nothing, got the state of one that does");
  }

  /** Work done so far; empty for a system that does not count. */
  counters(): WorkCounters {
    return {};
  }

  /** Frees models and caches. The system is unusable afterwards. */
  dispose(): void {}

  /**
   * What the system keeps while a tree grows, for systems that have something to keep; null otherwise. It can change no
   * result: see GrowthMemory.
   */
  growthMemory(): GrowthMemory<S, A> | null {
    return null;
  }

  /**
   * By role, which of several models takes part in the episode that a key belongs to: recorded with its graph. Empty for
   * a system of one model for each role.
   */
  modelsAt(_key: NodeKey): Readonly<Record<string, string>> {
    return {};
  }

  /** Stands in for the response of a target call that failed. Systems whose states are not strings override it. */
  emptyResponse(): S {
    return "" as S;
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
    responses: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<Assessment<S>[]> {
    if (contexts.length === 0) return [];
    const call = (rows: readonly number[]) =>
      attempt(
        "scorer",
        () =>
          this.rewardAndValidate(
            rows.map((row) => contexts[row]!),
            rows.map((row) => probes[row]!),
            rows.map((row) => responses[row]!),
            keys && rows.map((row) => keys[row]!),
          ),
        this.retry,
      );
    const all = contexts.map((_, row) => row);
    const batch = await call(all);
    if (batch.failure === null) return batch.value.map((reward) => assessed(reward));
    const assessments: Assessment<S>[] = [];
    for (const row of all) {
      const single = all.length === 1 ? batch : await call([row]);
      assessments.push(single.failure === null ? assessed(single.value[0]!) : notAssessed(single.failure));
    }
    return assessments;
  }

  async rolloutPromptWithTesterAndValidate(contexts: readonly S[], keys?: readonly NodeKey[]): Promise<A[]> {
    const probes = await this.rolloutPromptWithTester(contexts, keys);
    checkCount("System.rolloutPromptWithTester", probes, contexts.length);
    return probes;
  }

  async rolloutPromptWithTargetAndValidate(prompts: readonly S[], keys?: readonly NodeKey[]): Promise<S[]> {
    const responses = await this.rolloutPromptWithTarget(prompts, keys);
    checkCount("System.rolloutPromptWithTarget", responses, prompts.length);
    return responses;
  }

  async getTesterLogprobsAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable> {
    const where = "System.getTesterLogprobs";
    checkPaired(where, contexts, continuations);
    const logprobs = await this.getTesterLogprobs(contexts, continuations, sources);
    return this.#logprobs(where, logprobs, contexts.length, trained());
  }

  /** @throws UsageError where values are wanted of a system that tells none */
  async getTesterOutputAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    const where = "System.getTesterOutput";
    checkPaired(where, contexts, continuations);
    if (want.values === true) requireNeeds(this, ["values"], where);
    const output = await this.getTesterOutput(contexts, continuations, sources, want);
    const { values, entropy } = output;
    const logprobs = this.#logprobs(where, output.logprobs, contexts.length, trained());
    const rules = this.tensorRules(contexts.length, trained());
    if (want.values === true) {
      checkValues(`${where}: values`, values, rules);
      checkSameTokens(`${where}: values`, values, logprobs);
    }
    if (want.entropy === true && entropy !== undefined) {
      checkEntropy(`${where}: entropy`, entropy, rules);
      checkSameTokens(`${where}: entropy`, entropy, logprobs);
    }
    return output;
  }

  /** What `value` says, checked. @throws UsageError for a system that tells no values */
  async valueAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable> {
    const where = "System.value";
    checkPaired(where, contexts, continuations);
    requireNeeds(this, ["values"], where);
    const values = await (this as unknown as ValueFunction<S, A>).value(contexts, continuations, sources);
    checkValues(where, values, this.tensorRules(contexts.length, trained()));
    this.rememberDevice(values.values);
    return values;
  }

  async getBaselineLogprobsAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable> {
    const where = "System.getBaselineLogprobs";
    checkPaired(where, contexts, continuations);
    const logprobs = await this.getBaselineLogprobs(contexts, continuations, sources);
    return this.#logprobs(where, logprobs, contexts.length, false);
  }

  async getTargetLogprobsAndValidate(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable> {
    const where = "System.getTargetLogprobs";
    checkPaired(where, contexts, continuations);
    const logprobs = await this.getTargetLogprobs(contexts, continuations, sources);
    return this.#logprobs(where, logprobs, contexts.length, false);
  }

  async rewardAndValidate(
    contexts: readonly S[],
    probes: readonly A[],
    responses: readonly S[],
    keys?: readonly NodeKey[],
  ): Promise<number[]> {
    checkPaired("System.reward", contexts, probes);
    checkPaired("System.reward", contexts, responses);
    const rewards = await this.reward(contexts, probes, responses, keys);
    checkRewards("System.reward", rewards, contexts.length);
    return rewards;
  }

  /** Rules for a table of so many rows; the first result of any kind fixes the device of all. */
  protected tensorRules(batch: number, gradient: boolean | null): TensorRules {
    return { batch, gradient, device: this.#device };
  }

  protected rememberDevice(tensor: Tensor): void {
    this.#device ??= tensor.device;
  }

  #logprobs(where: string, logprobs: TokenTable, batch: number, gradient: boolean | null): TokenTable {
    checkLogprobs(where, logprobs, this.tensorRules(batch, gradient));
    this.rememberDevice(logprobs.values);
    return logprobs;
  }
}

/** What a system offers that can also say how good each token of a continuation is, for actor-critic algorithms. */
export interface ValueFunction<S = string, A = string> {
  /**
   * Value of each continuation token, aligned with `getTesterLogprobs`, with a gradient. Position t is the value of the
   * state in which token t is chosen, so the value after the last token is not included.
   */
  value(contexts: readonly S[], continuations: readonly A[], sources?: Sources<S, A>): Promise<TokenTable>;
}

/** A system with a value function. */
export abstract class ValueFunctionSystem<S = string, A = string>
  extends System<S, A>
  implements ValueFunction<S, A>
{
  abstract value(
    contexts: readonly S[],
    continuations: readonly A[],
    sources?: Sources<S, A>,
  ): Promise<TokenTable>;
}

/**
 * Whether a system says how good each token of a continuation is, whatever class it is of: it has a method `value`, and
 * does not say otherwise by `tellsValues`, as systems do whose models have value heads or not.
 */
export function hasValues<S, A>(system: System<S, A>): system is System<S, A> & ValueFunction<S, A> {
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

function assessed<S>(reward: number): Assessment<S> {
  return { reward, scores: {}, terms: {}, likelihood: null, failure: null };
}

function notAssessed<S>(failure: Failure): Assessment<S> {
  return { reward: NaN, scores: {}, terms: {}, likelihood: null, failure };
}
