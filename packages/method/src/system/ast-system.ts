import { UsageError, parseOptions, type Json } from "@astra-rl/base";
import type { Tensor } from "@astra-rl/torch";
import { Conversation, Message } from "@astra-rl/lm";
import type { Likelihood, TokensRecord } from "@astra-rl/records";
import {
  checkCount,
  likelihoodOf,
  nextKeys,
  overrides,
  RecordedFailure,
  TokenTable,
  tokensRecord,
  type Assessment,
  type Graph,
  type Node,
  type NodeKey,
  type RetryOptions,
} from "../tree/index.js";
import {
  disposeOnce,
  type Embedder,
  type Model,
  type TesterOutput,
  type TesterWants,
  type WorkCounters,
} from "../models/index.js";
import type { Scorer } from "../scorer/index.js";
import { paperReward, type Reward } from "../reward/index.js";
import type { PromptOf, MessageOrText } from "./message-or-text.js";
import { ENTROPY_UNKNOWN, System, type SystemNeed } from "./system.js";
import { assessTurns, lastProbe, TurnsInProgress, turnsOf, type Turn } from "./assess-turns.js";
import { memberAt, membersOf, ModelPool } from "./model-pool.js";
import { logprobsOf, nextMessages } from "./model-calls.js";
import { checkTokenizers, requirePart } from "./system-checks.js";
import {
  NOTHING,
  systemOptions,
  voicesOf,
  type ASTSystemOptions,
  type SystemParts,
  type TargetReads,
  type Voices,
} from "./system-parts.js";

/**
 * Adaptive stress testing of a language model (Hardy et al., arXiv 2407.09447): states are conversations, a turn
 * appends the probe and the response, and its reward combines the harm of the response with the likelihood of the
 * probe.
 *
 * Each method uses only the part that it needs and depends only on its arguments: an override may call `super` for all
 * rows or some, once or several times (`redraw` gives new draws).
 */
export class ASTSystem extends System {
  readonly parts: Readonly<SystemParts>;
  readonly #reward: Reward | null;
  readonly #voices: Voices;
  readonly #targetReads: TargetReads;
  /** Whether the baseline's log-probabilities of a probe come with the target's prefill: they share weights. */
  readonly #scoresEnds: boolean;
  readonly #inProgress = new TurnsInProgress();

  constructor(parts: SystemParts, given: ASTSystemOptions = {}) {
    super();
    const options = parseOptions(this.constructor.name, systemOptions, given);
    const { retry, targetReads, otherTesterShare, evaluateOtherTesters } = options;
    this.parts = parts;
    this.retry = retry as RetryOptions;
    const { baseline, scorer, reward } = parts;
    this.#reward = reward ?? (scorer === undefined ? null : paperReward(scorer));
    checkTokenizers(this.constructor.name, parts);
    this.#targetReads = targetReads;
    this.#voices = voicesOf(parts, { otherTesterShare, evaluateOtherTesters });
    const targets = [parts.target, ...(parts.otherTargets ?? [])];
    this.#scoresEnds = baseline !== undefined && targets.some((target) => target?.sharesWeights?.(baseline));
    this.#reward?.checkSystem(this.constructor.name, { tellsLikelihood: this.tellsLikelihood });
  }

  get scorer(): Scorer | undefined {
    return this.parts.scorer;
  }

  get embedder(): Embedder | undefined {
    return this.parts.embedder;
  }

  override stateOf(prompt: PromptOf<Conversation>): Conversation {
    return typeof prompt === "string" ? Conversation.of(prompt) : prompt;
  }

  override async rolloutPromptWithTester(
    contexts: readonly Conversation[],
    keys: readonly NodeKey[] = nextKeys(contexts.length),
  ): Promise<readonly MessageOrText<Message>[]> {
    this.#part("tester", "rolloutPromptWithTester", contexts);
    return nextMessages(this.#voices.tester!, contexts, { keys });
  }

  override async rolloutPromptWithTarget(
    prompts: readonly Conversation[],
    keys: readonly NodeKey[] = nextKeys(prompts.length),
  ): Promise<readonly MessageOrText<Message>[]> {
    this.#part("target", "rolloutPromptWithTarget", prompts);
    const target = this.#voices.target!;
    // The probe's log-probabilities come with the prefill, unless another model provides the likelihood.
    const isTeller = this.parts.likelihood === undefined && target.tellsLikelihood;
    const score = isTeller || this.#scoresEnds ? prompts.map(lastProbe) : undefined;
    return nextMessages(target, prompts, { keys, score, ends: this.#scoresEnds });
  }

  /** A key with new draws for the same node: its n-th further attempt, for overrides that sample several candidates. */
  redraw(key: NodeKey, n: number): NodeKey {
    if (!Number.isSafeInteger(n) || n < 0) {
      throw new UsageError("out-of-range", `ASTSystem.redraw: n must be a whole number ≥ 0, got ${n}`);
    }
    return { ...key, draw: n };
  }

  override modelsAt(key: NodeKey): Readonly<Record<string, string>> {
    const several = Object.entries(this.#voices).filter(([, model]) => model instanceof ModelPool);
    return Object.fromEntries(several.map(([role, model]) => [role, memberAt(model, key).name]));
  }

  override async getTesterLogprobs(
    contexts: readonly Conversation[],
    continuations: readonly Message[],
  ): Promise<TokenTable> {
    const tester = this.#part("tester", "getTesterLogprobs", contexts, continuations);
    return tester.forward(contexts, continuations).logprobs;
  }

  override getRecordedLogprobs(
    contexts: readonly Conversation[],
    continuations: readonly Message[],
  ): (readonly number[] | null)[] {
    // The rollout did not record what an override would return.
    if (!this.#isOwn("getTesterLogprobs")) return contexts.map(() => null);
    return continuations.map(({ sampled }, row) => {
      const isOwn = sampled?.tokens === this.parts.tester?.tokens && sampled?.after === contexts[row];
      return isOwn ? sampled!.logprobs : null;
    });
  }

  /**
   * One forward pass of the tester for all outputs, unless a subclass overrides `getTesterLogprobs` or `value`: then
   * each method is called separately, and overridden log-probabilities have no entropy.
   */
  override async getTesterOutput(
    contexts: readonly Conversation[],
    continuations: readonly Message[],
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    if (!this.#isOwn("getTesterLogprobs")) {
      return super.getTesterOutput(contexts, continuations, want);
    }
    const tester = this.#part("tester", "getTesterOutput", contexts, continuations);
    const values = want.values === true;
    const together = values && this.#isOwn("value");
    const output = tester.forward(contexts, continuations, { ...want, values: together });
    if (!values || together) return output;
    return { ...output, values: await this.checked.value(contexts, continuations) };
  }

  /** Output of the tester's value head; `hasValues` says whether there is one. */
  async value(contexts: readonly Conversation[], continuations: readonly Message[]): Promise<TokenTable> {
    const tester = this.#part("tester", "value", contexts, continuations);
    const { logprobs, values } = tester.forward(contexts, continuations, { values: true });
    logprobs.dispose();
    return values!;
  }

  /** Whether `value` is available: the tester has a value head, or a subclass overrides it. */
  get hasValues(): boolean {
    return this.parts.tester?.hasValues === true || !this.#isOwn("value");
  }

  override missingCapability(need: SystemNeed): string | null {
    const tellsOwn = !this.#isOwn("getTesterLogprobs");
    if (need === "entropy" && tellsOwn && this.#isOwn("getTesterOutput")) return ENTROPY_UNKNOWN;
    if (need !== "baseline") return super.missingCapability(need);
    if (this.parts.baseline !== undefined) return null;
    if (!this.#isOwn("getBaselineLogprobs")) return null;
    return "has none; load an HFASTSystem, give one in the parts of an ASTSystem, or override getBaselineLogprobs";
  }

  override valueParameters(): Iterable<Tensor> {
    return this.parts.tester?.valueParameters() ?? [];
  }

  /** Free if a model with the same weights has already read the probe in this context. */
  override async getBaselineLogprobs(
    contexts: readonly Conversation[],
    continuations: readonly Message[],
  ): Promise<TokenTable> {
    const baseline = this.#part("baseline", "getBaselineLogprobs", contexts, continuations);
    return this.#logprobs(baseline, contexts, continuations);
  }

  /** Uses the target's input before the probe. Free if the target has already read exactly that. */
  override async getTargetLogprobs(
    contexts: readonly Conversation[],
    continuations: readonly Message[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    const { likelihood } = this.parts;
    this.#part(likelihood ? "likelihood" : "target", "getTargetLogprobs", contexts, continuations);
    // How likely a user is to write a probe does not depend on the tester's goal.
    const read = contexts.map((context) => context.withGoal(null));
    if (likelihood !== undefined) return this.#logprobs(likelihood, read, continuations);
    const before = contexts.map((context, row) => {
      const probe = continuations[row]!;
      // A prompt that does not contain the probe cannot serve as its context.
      return this.checked.promptForTarget(context, probe).upTo(probe) ?? read[row]!;
    });
    return this.#logprobs(this.#voices.target!, before, continuations, keys);
  }

  override advance(context: Conversation, probe: Message, response: Message): MessageOrText<Conversation> {
    return context.append(probe, response);
  }

  override promptForTarget(context: Conversation, probe: Message): MessageOrText<Conversation> {
    return (this.#targetReads === "probe" ? NOTHING : context).append(probe);
  }

  override emptyResponse(): MessageOrText<Message> {
    return new Message("target", "");
  }

  /** Likelihood of each probe after its context under the target, from `getTargetLogprobs`. */
  async likelihood(
    contexts: readonly Conversation[],
    probes: readonly Message[],
    keys?: readonly NodeKey[],
  ): Promise<Likelihood[]> {
    const table = await this.checked.getTargetLogprobs(contexts, probes, keys);
    try {
      return table.rows().map(likelihoodOf);
    } finally {
      table.dispose();
    }
  }

  /** Likelihood, the reward's terms, then `reward`. Scores and terms are recorded even if a subclass computes the reward. */
  override async assess(
    contexts: readonly Conversation[],
    probes: readonly Message[],
    responses: readonly Message[],
    keys: readonly NodeKey[] = nextKeys(contexts.length),
  ): Promise<Assessment[]> {
    const turns = turnsOf("ASTSystem.assess", contexts, probes, responses, keys);
    const assessed = this.#reward === null ? null : await this.#assess(turns, this.#reward);
    if (assessed !== null) this.#inProgress.begin(turns, assessed);
    try {
      const rewards = await super.assess(contexts, probes, responses, keys);
      return rewards.map((own, row) => {
        return { ...(assessed?.[row] ?? own), reward: own.reward, failure: own.failure };
      });
    } finally {
      this.#inProgress.end(turns);
    }
  }

  /**
   * The weighted sum of the reward's terms.
   *
   * @throws RecordedFailure when a turn could not be judged; `assess` returns such failures as data
   */
  override async reward(
    contexts: readonly Conversation[],
    probes: readonly Message[],
    responses: readonly Message[],
    keys: readonly NodeKey[] = nextKeys(contexts.length),
  ): Promise<number[]> {
    const reward = this.#reward ?? paperReward(this.#part("scorer", "reward"));
    const turns = turnsOf("ASTSystem.reward", contexts, probes, responses, keys);
    const known = turns.map((turn) => this.#inProgress.of(turn));
    const others = await this.#assess(
      turns.filter((_, row) => known[row] === undefined),
      reward,
    );
    return known.map((assessment, row) => {
      const { reward: sum, failure } = assessment ?? others.shift()!;
      if (failure === null) return sum;
      throw new RecordedFailure(
        `${this.constructor.name}.reward: turn ${row} could not be scored after ${failure.attempts} ` +
          `attempts: ${failure.message}`,
        failure,
      );
    });
  }

  #assess(turns: readonly Turn[], reward: Reward): Promise<Assessment[]> {
    return assessTurns(turns, { reward, retry: this.retry, likelihoods: (some) => this.#likelihoods(some) });
  }

  /** Empty without a tester. */
  override parameters(): Iterable<Tensor> {
    return this.parts.tester?.parameters() ?? [];
  }

  override counters(): WorkCounters {
    const { baseline, likelihood } = this.parts;
    const models = Object.entries({ ...this.#voices, baseline, likelihood });
    return Object.fromEntries(
      models.flatMap(([role, model]) => (model === undefined ? [] : [[role, model.work]])),
    );
  }

  /** The token ids of a turn, for records; null if no model of this system exposes ids. */
  tokensOf(node: Node): TokensRecord | null {
    const { tester, target } = this.#voices;
    return tokensRecord(
      node,
      { tester: membersOf(tester), target: membersOf(target) },
      (context, probe) => this.checked.promptForTarget(context, probe),
      { isTeller: this.parts.likelihood === undefined },
    );
  }

  override get storesTester(): boolean {
    return this.parts.tester !== undefined || !this.#isOwn("saveTester");
  }

  /** Saves the tester; a local one in Hugging Face or PEFT format. Without one among the parts, `parameters()`. */
  override async saveTester(folder: string): Promise<void> {
    await (this.parts.tester?.save(folder) ?? super.saveTester(folder));
  }

  /** Loads the weights of a saved tester in place, so optimizers keep their references. */
  override async restoreTester(source: string): Promise<void> {
    await (this.parts.tester?.restore(source) ?? super.restoreTester(source));
  }

  override release(): void {
    for (const model of Object.values(this.#voices) as (Model | undefined)[]) model?.release();
  }

  override dispose(): void {
    const parts = Object.values(this.parts).flat() as ({ dispose?(): void } | undefined)[];
    for (const part of parts) if (part !== undefined) disposeOnce(part);
  }

  override observe(graphs: readonly Graph[]): Promise<void> {
    return this.#reward?.observe(graphs) ?? Promise.resolve();
  }

  /** The reward's state. */
  override getState(): Json {
    return this.#reward?.getState() ?? null;
  }

  override setState(state: Json): void {
    if (this.#reward === null) super.setState(state);
    else this.#reward.setState(state);
  }

  /** Whether a part or a method of a subclass provides likelihoods. */
  get tellsLikelihood(): boolean {
    if (this.parts.likelihood !== undefined || this.#voices.target?.tellsLikelihood === true) return true;
    return !this.#isOwn("likelihood", "getTargetLogprobs");
  }

  /** Whether no subclass overrides any of these methods. */
  #isOwn(...methods: (keyof ASTSystem)[]): boolean {
    return !overrides(this, ASTSystem.prototype, ...methods);
  }

  /** Log-probabilities of each message after its context, without gradients. */
  async #logprobs(
    model: Model,
    contexts: readonly Conversation[],
    messages: readonly Message[],
    keys?: readonly NodeKey[],
  ): Promise<TokenTable> {
    const rows = await logprobsOf(model, this.constructor.name, contexts, messages, keys);
    return TokenTable.ofRows(rows, this.parts.tester?.device);
  }

  async #likelihoods(turns: readonly Turn[]): Promise<(Likelihood | null)[]> {
    if (!this.tellsLikelihood) return turns.map(() => null);
    const keys = turns.flatMap(({ key }) => key ?? []);
    const likelihoods = await this.likelihood(
      turns.map(({ context }) => context),
      turns.map(({ probe }) => probe),
      keys.length === turns.length ? keys : undefined,
    );
    checkCount("ASTSystem.likelihood", likelihoods, turns.length);
    return likelihoods;
  }

  /** A part, for a method that is given these conversations and messages. */
  #part<Name extends keyof SystemParts>(
    name: Name,
    method: string,
    contexts: readonly unknown[] = [],
    messages: readonly unknown[] = [],
  ): NonNullable<SystemParts[Name]> {
    return requirePart(this, name, method, contexts, messages);
  }
}
