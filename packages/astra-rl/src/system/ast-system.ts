import { UsageError, type Tensor } from "@astra-rl/torch";
import {
  ENTROPY_UNKNOWN,
  attempt,
  checkCount,
  checkPaired,
  disposeOnce,
  likelihoodOf,
  overrides,
  type Assessment,
  type Embedder,
  type Graph,
  type GrowthMemory,
  type Json,
  type Likelihood,
  type Line,
  type Node,
  type NodeKey,
  type OtherUtterance,
  RecordedFailure,
  type Scorer,
  type Sources,
  type Speaker,
  System,
  type SystemNeed,
  type TesterOutput,
  type TesterWants,
  type TokensRecord,
  TokenTable,
  type Turn,
  type WorkCounters,
} from "../core/index.js";
import { paperReward, type Reward } from "../reward/index.js";
import { combineAnswers, TARGET_ANSWERS, type TargetAnswers } from "./combine-answers.js";
import { ConversationMemory } from "./conversation-memory.js";
import type { Level, Speakers } from "./level.js";
import { memberAt } from "./speaker-pool.js";
import {
  speakersOf,
  TARGET_READS,
  type ASTSystemOptions,
  type SystemParts,
  type TargetReads,
} from "./system-parts.js";
import { isKey, tokensOf, turnTokens } from "./turn-tokens.js";

/** Where a key's node grows. */
interface Place {
  level: Level;
  row: number;
}

/** What is known of a turn while it grows. */
interface Judgement {
  probe: string;
  response: string;
  assessment: Assessment;
}

/**
 * Adaptive stress testing of a language model (Hardy et al., arXiv 2407.09447): states are conversation texts, a turn
 * appends the probe and the response, and a turn is worth the harm it drew out and how likely the probe was.
 *
 * Each method is implemented over the part that it needs. While a tree grows, the methods find the conversations that
 * they continue by the key objects that they are given, so no model reads a token twice; an override that calls `super`
 * with the same keys, for all rows or for some, once or more often (`redraw` gives other draws), has the same ease.
 */
export class ASTSystem extends System {
  readonly parts: Readonly<SystemParts>;
  readonly #reward: Reward | null;
  readonly #speakers: Speakers;
  readonly #targetAnswers: TargetAnswers;
  readonly #targetReads: TargetReads;
  readonly #places = new WeakMap<NodeKey, Place>();
  readonly #judgements = new WeakMap<NodeKey, Judgement>();

  constructor(
    parts: SystemParts,
    {
      retry = {},
      targetAnswers = "one",
      targetReads = "conversation",
      otherTesterShare = 0.5,
      evaluateOtherTesters = false,
    }: ASTSystemOptions = {},
  ) {
    super();
    this.parts = parts;
    this.retry = retry;
    const { tester, otherTesters = [], baseline, scorer, reward } = parts;
    this.#reward = reward ?? (scorer === undefined ? null : paperReward(scorer));
    if (tester !== undefined && baseline !== undefined && !baseline.sharesTokens(tester)) {
      throw foreignBaseline(this.constructor.name);
    }
    for (const other of otherTesters) {
      if (tester?.sharesTokens(other) === true) continue;
      throw new UsageError(
        `${this.constructor.name}: ${other.name} must have the tester's tokenizer, since the tester learns from the ` +
          "tokens that it says; choose another checkpoint of the tester's family",
      );
    }
    if (!(otherTesterShare >= 0 && otherTesterShare <= 1)) {
      throw new UsageError(
        `${this.constructor.name}: otherTesterShare must be between 0 and 1, got ${String(otherTesterShare)}`,
      );
    }
    if (!TARGET_ANSWERS.includes(targetAnswers)) {
      throw new UsageError(
        `${this.constructor.name}: targetAnswers must be one of ${TARGET_ANSWERS.join(", ")}, got ${targetAnswers}`,
      );
    }
    if (!TARGET_READS.includes(targetReads)) {
      throw new UsageError(
        `${this.constructor.name}: targetReads must be one of ${TARGET_READS.join(", ")}, got ${targetReads}`,
      );
    }
    this.#targetAnswers = targetAnswers;
    this.#targetReads = targetReads;
    this.#speakers = speakersOf(parts, { targetAnswers, otherTesterShare, evaluateOtherTesters });
    this.#reward?.checkSystem(this.constructor.name, { tellsLikelihood: this.#tellsLikelihood() });
  }

  get scorer(): Scorer | undefined {
    return this.parts.scorer;
  }

  get embedder(): Embedder | undefined {
    return this.parts.embedder;
  }

  override async rolloutPromptWithTester(
    contexts: readonly string[],
    keys?: readonly NodeKey[],
  ): Promise<string[]> {
    this.#part("tester", "rolloutPromptWithTester");
    return this.#byLevel(keys, contexts.length, {
      known: (level, rows, at) =>
        level.speak(
          rows,
          at.map((row) => contexts[row]!),
          at.map((row) => keys![row]!),
        ),
      unknown: (at) =>
        utter(
          this.#speakers.tester!,
          at.map((row) => contexts[row]!),
          namedKeys(keys, at),
        ),
    });
  }

  override async rolloutPromptWithTarget(
    prompts: readonly string[],
    keys?: readonly NodeKey[],
  ): Promise<string[]> {
    this.#part("target", "rolloutPromptWithTarget");
    return this.#byLevel(keys, prompts.length, {
      known: (level, rows, at) =>
        level.respond(
          rows,
          at.map((row) => prompts[row]!),
          at.map((row) => keys![row]!),
        ),
      unknown: (at) =>
        utter(
          this.#speakers.target!,
          at.map((row) => prompts[row]!),
          namedKeys(keys, at),
        ),
    });
  }

  /** The same node with other draws: the n-th further attempt at it, for overrides that want several candidates. */
  redraw(key: NodeKey, n: number): NodeKey {
    if (!Number.isSafeInteger(n) || n < 0) {
      throw new UsageError(`ASTSystem.redraw: n must be a whole number of at least 0, got ${String(n)}`);
    }
    return this.#alias({ ...key, draw: n }, key);
  }

  override modelsAt(key: NodeKey): Readonly<Record<string, string>> {
    const { tester, target } = this.#speakers;
    const several = Object.entries({ tester, target }).filter(
      ([, speaker]) => speaker?.memberAt !== undefined,
    );
    return Object.fromEntries(several.map(([role, speaker]) => [role, memberAt(speaker!, key).name]));
  }

  override async getTesterLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const tester = this.#part("tester", "getTesterLogprobs");
    return tester.forward(this.#testerRows(contexts, continuations, sources)).logprobs;
  }

  override getRecordedLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): (readonly number[] | null)[] {
    // What an override gives is not what the tester's own rollout recorded.
    if (!this.#isOwn("getTesterLogprobs", "getTesterLogprobsAndValidate")) return contexts.map(() => null);
    const turns = turnTokens(this, contexts, continuations, sources);
    return turns.map((tokens) => tokens?.tester?.logprobs ?? null);
  }

  /**
   * All in one pass of the tester, where `getTesterLogprobs` and `value` are the tester's own; otherwise each is asked for
   * its part, and nobody can tell the entropy of log-probabilities that an override gave.
   */
  override async getTesterOutput(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
    want: TesterWants = {},
  ): Promise<TesterOutput> {
    if (!this.#isOwn("getTesterLogprobs", "getTesterLogprobsAndValidate")) {
      return super.getTesterOutput(contexts, continuations, sources, want);
    }
    const tester = this.#part("tester", "getTesterOutput");
    const values = want.values === true;
    const together = values && this.#isOwn("value", "valueAndValidate");
    const rows = this.#testerRows(contexts, continuations, sources);
    const output = tester.forward(rows, { ...want, values: together });
    if (!values || together) return output;
    return { ...output, values: await this.valueAndValidate(contexts, continuations, sources) };
  }

  /** What the tester's value head says; see `hasValues` for whether there is one. */
  async value(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const tester = this.#part("tester", "value");
    const { logprobs, values } = tester.forward(this.#testerRows(contexts, continuations, sources), {
      values: true,
    });
    logprobs.dispose();
    return values!;
  }

  /** Whether `value` can say something: through the tester's head, or as a subclass has it. */
  get tellsValues(): boolean {
    return this.parts.tester?.tellsValues === true || !this.#isOwn("value");
  }

  override lacks(need: SystemNeed): string | null {
    const tellsOwn = !this.#isOwn("getTesterLogprobs", "getTesterLogprobsAndValidate");
    if (need === "entropy" && tellsOwn && this.#isOwn("getTesterOutput")) return ENTROPY_UNKNOWN;
    if (need !== "baseline") return super.lacks(need);
    if (this.parts.baseline !== undefined) return null;
    if (!this.#isOwn("getBaselineLogprobs", "getBaselineLogprobsAndValidate")) return null;
    return "has none; give one in its parts, or override getBaselineLogprobs";
  }

  override valueParameters(): Iterable<Tensor> {
    return this.parts.tester?.valueParameters() ?? [];
  }

  /** Recorded numbers where the rollout or an earlier call has left them; the rest is computed and recorded. */
  override async getBaselineLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const baseline = this.#part("baseline", "getBaselineLogprobs");
    const known = turnTokens(this, contexts, continuations, sources);
    const rows = this.#testerRows(contexts, continuations, sources);
    const missing = known.flatMap((tokens, row) =>
      (tokens?.baselineLogprobs ?? null) === null ? [row] : [],
    );
    const scored = await baseline.score(missing.map((row) => rows[row]!));
    const computed = new Map(missing.map((row, index) => [row, scored[index]!]));
    for (const [row, logprobs] of computed) {
      const tokens = known[row];
      if (tokens?.tester) tokens.baselineLogprobs = logprobs;
    }
    const table = known.map((tokens, row) => computed.get(row) ?? tokens!.baselineLogprobs!);
    return TokenTable.ofRows(table, this.parts.tester?.device);
  }

  /** Recorded numbers where the target has heard the probe after this context; the rest is computed. */
  override async getTargetLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    if (this.parts.likelihood === undefined) this.#part("target", "getTargetLogprobs");
    const tellers = contexts.map((_, row) => {
      const source = sources?.[row];
      const key = source !== undefined && isKey(source) ? source : { seed: 0, episode: 0, node: row };
      return this.parts.likelihood ?? memberAt(this.#speakers.target!, key);
    });
    const turns = turnTokens(this, contexts, continuations, sources);
    const recorded = contexts.map((context, row) => {
      if (this.parts.likelihood !== undefined) return null;
      const source = sources?.[row];
      if (source === undefined) return null;
      if (!isKey(source)) return turns[row]?.target?.logprobs ?? null;
      const place = this.#places.get(source);
      return place?.level.probeLogprobs(place.row, context, continuations[row]!) ?? null;
    });
    const missing = recorded.flatMap((logprobs, row) => (logprobs === null ? [row] : []));
    const computed = new Map<number, number[]>();
    for (const teller of new Set(missing.map((row) => tellers[row]!))) {
      const rows = missing.filter((row) => tellers[row] === teller);
      const scored = await teller.score(
        rows.map((row) => teller.encode(contexts[row]!, continuations[row]!)),
      );
      rows.forEach((row, index) => computed.set(row, scored[index]!));
    }
    const table = recorded.map((logprobs, row) => logprobs ?? computed.get(row)!);
    return TokenTable.ofRows(table, this.parts.tester?.device);
  }

  override advance(context: string, probe: string, response: string): string {
    return context + probe + response;
  }

  override promptForTarget(context: string, probe: string): string {
    return this.#targetReads === "probe" ? probe : context + probe;
  }

  /** How likely the target finds each probe after its context: sums of `getTargetLogprobs`. */
  async likelihood(
    contexts: readonly string[],
    probes: readonly string[],
    keys?: readonly NodeKey[],
  ): Promise<Likelihood[]> {
    const table = await this.getTargetLogprobsAndValidate(contexts, probes, keys);
    try {
      return table.rows().map(likelihoodOf);
    } finally {
      table.dispose();
    }
  }

  /**
   * What each turn was worth: `likelihood`, then `reward`, with failures as data. Scores and reward terms are recorded
   * whoever computes the reward.
   */
  override async assess(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
    keys?: readonly NodeKey[],
  ): Promise<Assessment[]> {
    checkPaired("ASTSystem.assess", contexts, probes);
    checkPaired("ASTSystem.assess", contexts, responses);
    if (contexts.length === 0) return [];
    // Without keys of a growth, keys of our own carry what `reward` finds out.
    const own = keys ?? contexts.map((_, row): NodeKey => ({ seed: 0, episode: 0, node: row }));
    const others = own.flatMap((key, row) => this.#others(key).map((said) => ({ row, ...said })));
    if (others.length === 0) return this.#assessOwn(contexts, probes, responses, own);
    // What other targets said is judged as the turns themselves are, so that overrides count for it, too.
    const all = await this.#assessOwn(
      [...contexts, ...others.map(({ row }) => contexts[row]!)],
      [...probes, ...others.map(({ row }) => probes[row]!)],
      [...responses, ...others.map(({ text }) => text)],
      [...own, ...others.map(({ row }) => this.#alias({ ...own[row]! }, own[row]!))],
    );
    return own.map((_, row) => {
      const answers = others.flatMap((other, at) =>
        other.row === row
          ? [{ model: other.model, response: other.text, assessment: all[own.length + at]! }]
          : [],
      );
      return combineAnswers(all[row]!, answers, this.#targetAnswers);
    });
  }

  async #assessOwn(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
    own: readonly NodeKey[],
  ): Promise<Assessment[]> {
    const rewards = await super.assess(contexts, probes, responses, own);
    const unjudged = own.flatMap((key, row) =>
      this.#judgements.has(key) || this.#reward === null ? [] : [row],
    );
    if (unjudged.length > 0) {
      // The reward was computed without ours: scores are measured for the record all the same.
      const pick = <T>(values: readonly T[]) => unjudged.map((row) => values[row]!);
      await this.#judge(pick(contexts), pick(probes), pick(responses), pick(own));
    }
    return rewards.map(({ reward, failure }, row): Assessment => {
      const judged = this.#judgements.get(own[row]!)?.assessment;
      if (judged === undefined) return { reward, scores: {}, terms: {}, likelihood: null, failure };
      return { ...judged, reward, failure };
    });
  }

  /**
   * The weighted sum of the reward's terms.
   *
   * @throws RecordedFailure when a turn could not be judged; `assess` gives such failures as data
   */
  override async reward(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
    keys?: readonly NodeKey[],
  ): Promise<number[]> {
    if (this.#reward === null) this.#part("scorer", "reward");
    const assessments = await this.#judge(contexts, probes, responses, keys);
    return assessments.map(({ reward, failure }, row) => {
      if (failure === null) return reward;
      throw new RecordedFailure(
        `${this.constructor.name}.reward: turn ${row} could not be scored after ${failure.attempts} tries: ${failure.message}`,
        failure,
      );
    });
  }

  /** Nothing is trained without a tester. */
  override parameters(): Iterable<Tensor> {
    return this.parts.tester?.parameters() ?? [];
  }

  override counters(): WorkCounters {
    const { baseline, likelihood } = this.parts;
    const { tester, target } = this.#speakers;
    const speakers = Object.entries({ tester, target, baseline, likelihood });
    return Object.fromEntries(
      speakers.flatMap(([role, speaker]) => (speaker === undefined ? [] : [[role, speaker.work]])),
    );
  }

  /** The token ids behind a turn, for records; null where this system did not make it. */
  tokensOf(node: Node): TokensRecord | null {
    return tokensOf(this, node)?.toRecord() ?? null;
  }

  /** Whether `saveTester` and `restoreTester` have a tester to write; otherwise checkpoints hold `parameters()`. */
  get storesTester(): boolean {
    return this.parts.tester !== undefined || !this.#isOwn("saveTester") || !this.#isOwn("restoreTester");
  }

  /** Writes the tester, in a format that others can load. */
  async saveTester(folder: string): Promise<void> {
    await this.#part("tester", "saveTester").save(folder);
  }

  /** Takes the weights of a saved tester, in place: optimizers keep their hold of the parameters. */
  async restoreTester(source: string): Promise<void> {
    await this.#part("tester", "restoreTester").restore(source);
  }

  override dispose(): void {
    const parts = Object.values(this.parts).flat() as ({ dispose?(): void } | undefined)[];
    for (const part of parts) if (part !== undefined) disposeOnce(part);
  }

  override observe(graphs: readonly Graph[]): Promise<void> {
    return this.#reward?.observe(graphs) ?? Promise.resolve();
  }

  /** What the reward remembers. */
  override getState(): Json {
    return this.#reward?.getState() ?? null;
  }

  override setState(state: Json): void {
    if (this.#reward === null) super.setState(state);
    else this.#reward.setState(state);
  }

  override growthMemory(): GrowthMemory {
    return new ConversationMemory(this, this.#speakers, (key, level, row) =>
      this.#places.set(key, { level, row }),
    );
  }

  /** Whether somebody says how likely probes are: a part, or a method of a subclass. */
  #tellsLikelihood(): boolean {
    const { likelihood } = this.parts;
    const { target } = this.#speakers;
    return (
      likelihood !== undefined ||
      target?.tellsLikelihood === true ||
      !this.#isOwn("likelihood", "getTargetLogprobs")
    );
  }

  /** Whether no subclass has any of these methods in place of ours. */
  #isOwn(...methods: (keyof ASTSystem)[]): boolean {
    return !methods.some((method) => overrides<ASTSystem>(this, ASTSystem.prototype, method));
  }

  /** What other targets said to a growing node's probe; none where they do not count. */
  #others(key: NodeKey): readonly OtherUtterance[] {
    const place = this.#places.get(key);
    return place === undefined ? [] : place.level.others(place.row);
  }

  /** Another key object for the node that a key names. */
  #alias(alias: NodeKey, key: NodeKey): NodeKey {
    const place = this.#places.get(key);
    if (place !== undefined) this.#places.set(alias, place);
    return alias;
  }

  /** Turns judged by the reward's terms, each once while it grows. */
  async #judge(
    contexts: readonly string[],
    probes: readonly string[],
    responses: readonly string[],
    keys: readonly NodeKey[] | undefined,
  ): Promise<Assessment[]> {
    const known = contexts.map((_, row) => {
      const key = keys?.[row];
      const judged = key === undefined ? undefined : this.#judgements.get(key);
      const isSame = judged?.probe === probes[row] && judged?.response === responses[row];
      return isSame ? judged!.assessment : undefined;
    });
    const missing = known.flatMap((assessment, row) => (assessment === undefined ? [row] : []));
    const judged = await this.#assessTurns(
      missing.map((row) => ({
        context: contexts[row]!,
        probe: probes[row]!,
        response: responses[row]!,
        key: keys?.[row] ?? { seed: 0, episode: 0, node: row },
      })),
      keys === undefined ? undefined : missing.map((row) => keys[row]!),
    );
    missing.forEach((row, at) => {
      known[row] = judged[at]!;
      const key = keys?.[row];
      if (key !== undefined) {
        this.#judgements.set(key, {
          probe: probes[row]!,
          response: responses[row]!,
          assessment: judged[at]!,
        });
      }
    });
    return known as Assessment[];
  }

  async #assessTurns(
    turns: readonly Omit<Turn, "likelihood">[],
    keys: readonly NodeKey[] | undefined,
  ): Promise<Assessment[]> {
    if (turns.length === 0) return [];
    const call = () =>
      this.likelihood(
        turns.map(({ context }) => context),
        turns.map(({ probe }) => probe),
        keys,
      );
    const known = await attempt("likelihood", call, this.retry);
    const reward = this.#reward!;
    if (known.failure === null) checkCount("ASTSystem.likelihood", known.value, turns.length);
    else if (reward.needsLikelihood) {
      const { failure } = known;
      return turns.map(() => ({ reward: NaN, scores: {}, terms: {}, likelihood: null, failure }));
    }
    const judged: Assessment[] = [];
    for (const purpose of ["train", "evaluate"] as const) {
      const rows = turns.flatMap(({ key }, row) => ((key.purpose ?? "train") === purpose ? [row] : []));
      const assessments = await reward.assess(
        rows.map((row) => ({
          ...turns[row]!,
          likelihood: known.failure === null ? known.value[row]! : null,
          testerLogprobs: this.#testerLogprobs(turns[row]!),
        })),
        purpose,
        this.retry,
      );
      rows.forEach((row, at) => (judged[row] = assessments[at]!));
    }
    return judged;
  }

  #testerLogprobs({ probe, key }: Pick<Turn, "probe" | "key">): readonly number[] | null {
    const place = this.#places.get(key);
    return place === undefined ? null : place.level.testerLogprobs(place.row, probe);
  }

  /** Ids of contexts and probes on the tester's side: those that were sampled where the nodes are known. */
  #testerRows(contexts: readonly string[], continuations: readonly string[], sources?: Sources) {
    const tester = this.#part("tester", "getTesterLogprobs");
    return turnTokens(this, contexts, continuations, sources).map((tokens, row) =>
      tokens?.tester
        ? { context: tokens.tester.context, continuation: tokens.tester.probe }
        : tester.encode(contexts[row]!, continuations[row]!),
    );
  }

  /** Calls once for each level that keys belong to, and once for those of none; answers in the order of the rows. */
  async #byLevel(
    keys: readonly NodeKey[] | undefined,
    count: number,
    calls: {
      known: (level: Level, rows: number[], at: number[]) => Promise<string[]>;
      unknown: (at: number[]) => Promise<string[]>;
    },
  ): Promise<string[]> {
    const groups = new Map<Level | null, { rows: number[]; at: number[] }>();
    for (let at = 0; at < count; at += 1) {
      const key = keys?.[at];
      const place = key === undefined ? undefined : this.#places.get(key);
      const group = groups.get(place?.level ?? null) ?? { rows: [], at: [] };
      groups.set(place?.level ?? null, group);
      group.rows.push(place?.row ?? -1);
      group.at.push(at);
    }
    const answers: string[] = Array.from({ length: count });
    for (const [level, { rows, at }] of groups) {
      const texts = level === null ? await calls.unknown(at) : await calls.known(level, rows, at);
      at.forEach((row, index) => (answers[row] = texts[index]!));
    }
    return answers;
  }

  #part<Name extends keyof SystemParts>(name: Name, method: string): NonNullable<SystemParts[Name]> {
    const part = this.parts[name];
    if (part !== undefined) return part;
    throw new UsageError(
      `${this.constructor.name}.${method}: this system has no ${name}; give one in its parts, or override ${method}`,
    );
  }
}

/** For a baseline that has other tokens than the tester. @param where begins the message */
export function foreignBaseline(where: string): UsageError {
  return new UsageError(
    `${where}: the baseline must have the tester's tokenizer, since both score the same tokens; ` +
      "choose the tester's initial checkpoint or another of its family",
  );
}

const namedKeys = (keys: readonly NodeKey[] | undefined, rows: readonly number[]): NodeKey[] =>
  rows.map((row) => keys?.[row] ?? { seed: 0, episode: 0, node: row });

/** Utterances behind texts that belong to no growing tree. */
async function utter(
  speaker: Speaker,
  texts: readonly string[],
  keys: readonly NodeKey[],
): Promise<string[]> {
  if (texts.length === 0) return [];
  const starts = texts.map((text): Line[] => [{ voice: "opening", text }]);
  const conversation = await speaker.open(starts, keys);
  try {
    return (await conversation.speak(keys)).map(({ text }) => text);
  } finally {
    conversation.close();
  }
}
