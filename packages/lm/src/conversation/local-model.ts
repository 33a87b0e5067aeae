import { isGradEnabled, noGrad } from "@astra-rl/torch";
import type { DrawKey } from "@astra-rl/base";
import type { CausalLM } from "../causal-lm.js";
import { Codec } from "../format/codec.js";
import { PlainFormat, type Format, type Span } from "../format/format.js";
import { GenerationSession } from "../generation/session.js";
import type { DecodeGraphs } from "../generation/static/decode-graphs.js";
import type { Sampling } from "../generation/sampling.js";
import type { CacheBudget } from "../generation/session-budget.js";
import { WorkCounters } from "../generation/session-counters.js";
import { tokenOutputs, type ScoredRow, type TokenOutputs, type TokenOutputsOptions } from "../logprobs.js";
import type { Tokenizer } from "../tokenizer.js";
import { equalIds, standIn } from "../token-ids.js";
import { Message, type Conversation } from "./conversation.js";
import { bodyIn, ConversationRows, idsIn, NOTHING, type SplitRow } from "./conversation-rows.js";
import { PrefixCache } from "./prefix-cache.js";
import { knownScores, rememberScores } from "./score-memory.js";

/** Key of a message's random draws; the model provides the stream. */
export type SampleKey = Omit<DrawKey, "stream"> & {
  /** Different numbers give different draws at the same node. Default 0. */
  draw?: number;
};

export interface LocalModelOptions {
  /** The role whose messages this model generates. */
  role: "tester" | "target";
  /** The weights for generating and scoring; called at each use, since the weights may move to another copy. */
  model: () => CausalLM;
  /** Must change whenever the weights change. Default: they never do. */
  version?: () => number;
  tokenizer: Tokenizer;
  sampling: Sampling;
  /** Memory limit for key/value caches; may be shared by several models. */
  cacheBudget: CacheBudget;
  /** The static steps of a model, with which it generates; null where it does without. Default: always without. */
  graphs?: (model: CausalLM) => DecodeGraphs | null;
  /** How conversations become token ids. Default: messages concatenated, nothing between them. */
  format?: Format;
  /** Called once, when tokens are first dropped because the context window is full. */
  onTruncate?: (message: string) => void;
  /** Frees the model's resources. */
  onDispose?: () => void;
}

/** Options for scoring messages during generation. */
export interface ScoreOptions {
  /** By row, a message of the conversation whose log-probabilities will be needed; null for none. */
  score?: readonly (Message | null)[];
  /** Whether the message's end-of-sequence token will be needed too. Default false. */
  ends?: boolean;
}

/** The ids of a conversation in which a message is scored. */
export interface Reading {
  /** Ids before the message and before the context around it. */
  readonly context: readonly number[];
  /** The remaining ids. */
  readonly heard: readonly number[];
  /** Span of the message's own ids within `heard`; empty if the conversation does not contain the message. */
  readonly body: Span;
}

/**
 * A language model in this process: a function of conversations. It caches everything it prefills until
 * `release`, so that no token is prefilled twice; this does not change results.
 */
export class LocalModel {
  readonly role: "tester" | "target";
  readonly tokenizer: Tokenizer;
  readonly codec: Codec;
  /** Fingerprint of the tokenizer of its messages' ids. */
  readonly tokens: string;
  readonly format: Format;
  readonly sampling: Sampling;
  readonly tellsLikelihood = true;
  readonly #options: LocalModelOptions;
  readonly #cache = new PrefixCache();
  readonly #rows: ConversationRows;
  readonly #sessions = new WorkCounters();
  readonly #contextLength: number;
  #cached: { model: CausalLM; version: number } | null = null;
  #scored = 0;
  #trained = 0;

  /** @param name recorded in messages; also the stream of the random draws */
  constructor(
    readonly name: string,
    options: LocalModelOptions,
  ) {
    this.#options = options;
    this.role = options.role;
    this.tokenizer = options.tokenizer;
    this.codec = Codec.of(options.tokenizer);
    this.tokens = options.tokenizer.fingerprint;
    this.format = options.format ?? new PlainFormat(this.codec, { role: options.role });
    this.sampling = options.sampling;
    // `model()` may update a copy, but the model's sizes never change.
    const model = options.model();
    this.#contextLength = model.config.contextLength;
    let isTruncated = false;
    this.#rows = new ConversationRows({
      format: this.format,
      role: this.role,
      tokens: this.tokens,
      room: this.#contextLength - this.#reserve,
      standIn: () => standIn(model),
      onTruncate: () => {
        if (isTruncated) return;
        isTruncated = true;
        options.onTruncate?.(
          `${name}: a conversation is longer than the model's window of ${this.#contextLength} tokens; ` +
            `the oldest tokens are dropped from now on (shown once)`,
        );
      },
    });
  }

  get model(): CausalLM {
    return this.#options.model();
  }

  /** Token counts so far. */
  get work(): { read: number; generated: number; trained: number } {
    return {
      read: this.#sessions.tokensRead + this.#scored,
      generated: this.#sessions.tokensGenerated,
      trained: this.#trained,
    };
  }

  /**
   * Generates the model's next message in each conversation with the random key of its row. The messages in
   * `score` are scored during prefill, so that a later `logprobs` costs nothing.
   */
  async generate(
    conversations: readonly Conversation[],
    { keys, score, ends = false }: { keys: readonly SampleKey[] } & ScoreOptions,
  ): Promise<Message[]> {
    this.#dropStale();
    const rows = conversations.map((conversation, at): SplitRow => {
      const message = score?.[at] ?? null;
      const split = message === null ? null : this.#rows.split(conversation, message);
      if (split?.fits === true) return { ...split, message };
      const ids = this.prompt(conversation);
      const length = ids.length - this.format.cue(conversation).length;
      return { ids, base: conversation, length, body: NOTHING, message: null };
    });
    // Siblings share the tokens before the scored message: they are prefilled once.
    const distinct: { conversation: Conversation; ids: readonly number[] }[] = [];
    const placesOf = new Map<Conversation, number[]>();
    const baseOf = rows.map(({ ids, base, length }) => {
      const shared = ids.slice(0, length);
      const places = placesOf.get(base) ?? [];
      placesOf.set(base, places);
      const known = places.find((place) => equalIds(distinct[place]!.ids, shared));
      if (known !== undefined) return known;
      const place = distinct.push({ conversation: base, ids: shared }) - 1;
      places.push(place);
      return place;
    });
    const messages: Message[] = [];
    const groups = this.#cache.take(distinct, (ids) => this.#open(ids));
    for (const [group, { session: taken, at }] of groups.entries()) {
      const rowIn = new Map(at.map((place, row) => [place, row]));
      const mine = rows.flatMap((_, row) => (rowIn.has(baseOf[row]!) ? [row] : []));
      const children = mine.map((row) => rowIn.get(baseOf[row]!)!);
      const isSame = children.length === at.length && children.every((child, index) => child === index);
      let session = taken;
      try {
        if (!isSame) session = taken.fork(children, { consume: true });
        this.#read(
          session,
          mine.map((row) => rows[row]!),
          ends,
        );
        const said = this.#sample(
          session,
          mine.map((row) => conversations[row]!),
          mine.map((row) => keys[row]!),
        );
        mine.forEach((row, index) => (messages[row] = said[index]!));
        this.#cache.keep(
          session,
          mine.map((row) => conversations[row]!.append(messages[row]!)),
        );
      } catch (error) {
        // Sessions of later groups have no other owner yet.
        for (const { session: rest } of groups.slice(group + 1)) rest.dispose();
        session.dispose();
        throw error;
      }
    }
    return messages;
  }

  /**
   * Log-probabilities of each message's ids after its conversation, without gradients. For the model's own
   * messages, this includes the end-of-sequence id.
   */
  async logprobs(
    conversations: readonly Conversation[],
    messages: readonly Message[],
  ): Promise<(readonly number[])[]> {
    const rows = conversations.map((conversation, row) => this.row(conversation, messages[row]!));
    const known = rows.map(({ context, continuation }, row) =>
      this.#isFixed ? knownScores(this.model, messages[row]!, context, continuation) : null,
    );
    const missing = known.flatMap((logprobs, row) => (logprobs === null ? [row] : []));
    const computed = this.#score(missing.map((row) => rows[row]!));
    missing.forEach((row, index) => {
      const [message, logprobs] = [messages[row]!, computed[index]!];
      known[row] = logprobs;
      this.#remember(message, rows[row]!.context, logprobs.slice(0, this.idsOf(message).kept + 1));
    });
    return known as (readonly number[])[];
  }

  /**
   * Log-probabilities, and any further requested outputs, of messages under weights that are being trained:
   * [B, T], differentiable if gradients are enabled; otherwise the tokens count as read.
   */
  train(
    model: CausalLM,
    rows: readonly ScoredRow[],
    options: Pick<TokenOutputsOptions, "gradientCheckpointing" | "entropy" | "head"> = {},
  ): TokenOutputs {
    const counters = { tokensRead: 0 };
    const outputs = tokenOutputs(model, rows, { ...options, counters });
    if (isGradEnabled()) this.#trained += counters.tokensRead;
    else this.#scored += counters.tokensRead;
    return outputs;
  }

  /** A conversation and its next message as ids to be scored; the model's own with the end id that was sampled. */
  row(conversation: Conversation, message: Message): ScoredRow {
    const { pinned } = this.format;
    const rowOf = (ids: readonly number[], [from, to]: Span) => {
      return { context: ids.slice(0, from), continuation: ids.slice(from, to), pinned };
    };
    if (message.from === this.role) {
      return { context: this.prompt(conversation), continuation: this.idsOf(message).ids, pinned };
    }
    const whole = conversation.append(message);
    const split = this.#rows.split(whole, message)!;
    if (split.fits) return rowOf(split.ids, split.body);
    // No answer has to fit after it, so the message may use the whole window.
    const row = this.#rows.row(whole);
    return rowOf(idsIn(row), bodyIn(row, whole.depth - 1));
  }

  /** Ids of a conversation without the cue. Messages in this model's tokens keep their sampled ids. */
  view(conversation: Conversation): readonly number[] {
    return idsIn(this.#rows.row(conversation));
  }

  /** The prompt for the model's next message; the oldest ids are dropped if the context window is full. */
  prompt(conversation: Conversation): readonly number[] {
    return idsIn(this.#rows.prompt(conversation));
  }

  /** The ids that the model reads when a message of a conversation is scored. */
  reading(conversation: Conversation, message: Message): Reading {
    const split = this.#rows.split(conversation, message);
    if (split === null) return { context: this.prompt(conversation), heard: [], body: NOTHING };
    const { ids, length, body } = split;
    const heard = [body[0] - length, body[1] - length] as const;
    return { context: ids.slice(0, length), heard: ids.slice(length), body: heard };
  }

  /**
   * A message's ids in this model's tokens: the sampled ids if they are of this tokenizer, otherwise its text encoded.
   */
  idsOf(message: Message): { ids: readonly number[]; kept: number } {
    if (message.sampled?.tokens === this.tokens) return message.sampled;
    const ids = this.codec.continue(message.text);
    return { ids, kept: ids.length };
  }

  /** The text that each id adds to those before it. */
  spell(ids: readonly number[]): string[] {
    return this.codec.spell(ids);
  }

  /** Whether both use the same frozen weights, so that scores of one hold for the other. */
  sharesWeights(other: unknown): boolean {
    return other instanceof LocalModel && other.model === this.model;
  }

  /** Frees all key/value caches. */
  release(): void {
    this.#cache.release();
  }

  dispose(): void {
    this.release();
    this.#options.onDispose?.();
  }

  /** Tokens of the context window reserved for the model's message. */
  get #reserve(): number {
    return Math.min(this.sampling.maxNewTokens, this.#contextLength - 1);
  }

  /** Caches of earlier weights cannot be used. */
  #dropStale(): void {
    const { model } = this;
    const version = this.#options.version?.() ?? 0;
    if (this.#cached?.model !== model || this.#cached.version !== version) this.#cache.release();
    this.#cached = { model, version };
  }

  #open(rows: readonly (readonly number[])[]): GenerationSession {
    const { model } = this;
    return GenerationSession.open(model, this.codec, rows, {
      endIds: [...model.config.eosIds, ...this.format.endIds],
      cacheBudget: this.#options.cacheBudget,
      reserve: this.#reserve,
      pinned: this.format.pinned,
      work: this.#sessions,
      graphs: this.#options.graphs?.(model) ?? null,
    });
  }

  /** Prefills the ids after each row's shared prefix and stores the log-probabilities of the scored messages. */
  #read(session: GenerationSession, rows: readonly SplitRow[], ends: boolean): void {
    const tails = rows.map(({ ids, length }) => ids.slice(length));
    if (rows.every(({ message }) => message === null)) {
      if (tails.some((tail) => tail.length > 0)) session.read(tails, { score: false });
      return;
    }
    const scored = session.read(tails, {
      score: rows.map(({ body: [from, to], length }) =>
        from === to ? [] : [[from - length, to - length] as const],
      ),
    });
    // The end-of-sequence id is not part of the prompt: its log-probability is looked up after the last token.
    const asked = rows.map(({ message, body, ids }) => {
      const sampled = ends && message?.sampled?.tokens === this.tokens ? message.sampled : null;
      const isEnded = sampled !== null && sampled.ids.length === sampled.kept + 1;
      return isEnded && body[1] === ids.length ? sampled.ids.at(-1)! : null;
    });
    const found = asked.every((id) => id === null) ? asked : session.peek(asked);
    rows.forEach(({ message, ids, body }, row) => {
      if (message === null) return;
      const end = found[row] ?? null;
      const logprobs = end === null ? scored[row]! : [...scored[row]!, end];
      this.#remember(message, ids.slice(0, body[0]), logprobs);
    });
  }

  /** Weights that change are scored anew each time. */
  get #isFixed(): boolean {
    return this.#options.version === undefined;
  }

  #remember(message: Message, context: readonly number[], logprobs: readonly number[]): void {
    if (this.#isFixed) rememberScores(this.model, message, context, logprobs);
  }

  #score(rows: readonly ScoredRow[]): number[][] {
    if (rows.length === 0) return [];
    const { logprobs: table } = noGrad(() => this.train(this.model, rows));
    try {
      const values = table.toTypedArray() as Float32Array;
      const columns = table.shape[1]!;
      return rows.map(({ continuation }, row) =>
        Array.from(values.subarray(row * columns, row * columns + continuation.length)),
      );
    } finally {
      table.dispose();
    }
  }

  #sample(session: GenerationSession, after: readonly Conversation[], keys: readonly SampleKey[]): Message[] {
    const draws = keys.map(({ seed, episode, node, draw = 0 }): DrawKey => {
      return { seed, episode, node, stream: draw === 0 ? this.name : `${this.name}/${draw}` };
    });
    const { ids, logprobs, kept, finished } = session.generate(this.sampling, draws);
    return after.map(
      (conversation, row) =>
        // Special tokens that stay in the conversation are part of the message, and are decoded as text.
        new Message(
          this.role,
          this.codec.decode(ids[row]!.slice(0, kept[row]), { skipSpecialTokens: false }),
          {
            by: this.name,
            tokens: this.tokens,
            ids: ids[row]!,
            kept: kept[row]!,
            logprobs: logprobs[row]!,
            finished: finished[row]!,
            after: conversation,
          },
        ),
    );
  }
}
