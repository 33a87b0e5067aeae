import { isGradEnabled, noGrad } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import { Codec } from "../format/codec.js";
import { PlainFormat, rowLength, type Format, type OwnIds, type Row, type Span } from "../format/format.js";
import type { DrawKey } from "../generation/keyed-random.js";
import { GenerationSession, standIn } from "../generation/session.js";
import type { Sampling } from "../generation/sampling.js";
import type { CacheBudget } from "../generation/session-budget.js";
import { WorkCounters } from "../generation/session-counters.js";
import { tokenOutputs, type ScoredRow, type TokenOutputs, type TokenOutputsOptions } from "../logprobs.js";
import type { Tokenizer } from "../tokenizer.js";
import { Message, type Conversation } from "./conversation.js";
import { PrefixCache } from "./prefix-cache.js";

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

/** A conversation as ids: a prefix that other rows may share, then the row's own ids. */
interface SplitRow {
  readonly ids: readonly number[];
  /** The conversation that the shared ids encode. */
  readonly base: Conversation;
  /** Number of shared ids. */
  readonly length: number;
  /** Span of the scored message. */
  readonly body: Span;
  /** null: nothing is scored. */
  readonly message: Message | null;
}

const NOTHING: Span = [0, 0];

/**
 * Log-probabilities of a message under frozen weights: of the kept ids, and of the end-of-sequence id if it
 * was requested.
 */
interface Scored {
  readonly context: readonly number[];
  readonly logprobs: readonly number[];
}

/** Scores by weights, so that models with shared weights share them. */
const scoredBy = new WeakMap<CausalLM, WeakMap<Message, Scored>>();

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
  readonly #rows = new WeakMap<Conversation, Row>();
  readonly #sessions = new WorkCounters();
  readonly #contextLength: number;
  readonly #standIn: () => number;
  #cached: { model: CausalLM; version: number } | null = null;
  #scored = 0;
  #trained = 0;
  #truncated = false;

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
    this.#standIn = () => standIn(model);
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
      const split = message === null ? null : this.#split(conversation, message);
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
      const known = places.find((place) => isEqual(distinct[place]!.ids, shared));
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
      this.#known(messages[row]!, context, continuation),
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

  /**
   * A conversation and its next message as ids to be scored. The model's own messages include the
   * end-of-sequence id that was sampled.
   */
  row(conversation: Conversation, message: Message): ScoredRow {
    const { pinned } = this.format;
    const rowOf = (ids: readonly number[], [from, to]: Span) => {
      return { context: ids.slice(0, from), continuation: ids.slice(from, to), pinned };
    };
    if (message.from === this.role) {
      return { context: this.prompt(conversation), continuation: this.idsOf(message).ids, pinned };
    }
    const whole = conversation.append(message);
    const split = this.#split(whole, message)!;
    if (split.fits) return rowOf(split.ids, split.body);
    // No answer has to fit after it, so the message may use the whole window.
    const row = this.#row(whole);
    return rowOf(idsIn(row), bodyIn(row, whole.depth - 1));
  }

  /** Ids of a conversation without the cue. Messages in this model's tokens keep their sampled ids. */
  view(conversation: Conversation): readonly number[] {
    return idsIn(this.#row(conversation));
  }

  /** The prompt for the model's next message; the oldest ids are dropped if the context window is full. */
  prompt(conversation: Conversation): readonly number[] {
    return idsIn(this.#prompt(conversation));
  }

  /** The ids that the model reads when a message of a conversation is scored. */
  reading(conversation: Conversation, message: Message): Reading {
    const split = this.#split(conversation, message);
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

  /**
   * The text that each id adds to those before it; together they are the text of all ids. An id that holds only a part of a
   * character adds nothing, and the one that completes it adds the character.
   */
  spell(ids: readonly number[]): string[] {
    let before = "";
    return ids.map((_, at) => {
      const text = this.codec.decode(ids.slice(0, at + 1), { skipSpecialTokens: false });
      const isWhole = at === ids.length - 1 || !text.endsWith("\uFFFD");
      // Decoders may change what came before, such as a leading space.
      if (!isWhole || !text.startsWith(before)) return "";
      const piece = text.slice(before.length);
      before = text;
      return piece;
    });
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
    });
  }

  /**
   * Splits a conversation before a message and the context around it; null if the message is not in it.
   * `fits` is false if the context window, with room for an answer, cuts into the first part.
   */
  #split(
    conversation: Conversation,
    message: Message,
  ): (Omit<SplitRow, "message"> & { readonly fits: boolean }) | null {
    const base = conversation.before(message);
    if (base === null) return null;
    const row = this.#prompt(conversation);
    const ids = idsIn(row);
    const before = rowLength(row.slice(0, base.depth));
    const least = Math.max(1, this.format.pinned);
    const fits = before >= least;
    const length = fits ? before : Math.min(least, ids.length);
    const at = conversation.messages().indexOf(message, base.depth);
    const [from, to] = at < 0 ? NOTHING : bodyIn(row, at);
    return { ids, base, length, body: [Math.max(length, from), Math.max(length, to)], fits };
  }

  /** Pieces of a conversation's messages, regardless of the context window. */
  #row(conversation: Conversation): Row {
    const known = this.#rows.get(conversation);
    if (known !== undefined) return known;
    const row = this.#layout(conversation);
    this.#rows.set(conversation, row);
    return row;
  }

  #layout(conversation: Conversation): Row {
    const { parent, last } = conversation;
    if (this.format.layout !== undefined) return this.format.layout(conversation, this.#own);
    const piece = this.format.write(parent, last, this.#own(last));
    if (parent === null) {
      // A row needs at least one id.
      return piece.ids.length === 0 ? [{ ids: [this.#standIn()], body: [0, 0] }] : [piece];
    }
    if (last.from !== this.role) return [...this.#row(parent), piece];
    // What the model was prompted with stays: what was dropped then, and the cue.
    const prompt = this.#prompt(parent);
    const cue = prompt.at(-1)!.ids;
    const [from, to] = piece.body;
    const said = { ids: [...cue, ...piece.ids], body: [from + cue.length, to + cue.length] as const };
    return [...prompt.slice(0, -1), said];
  }

  /** Pieces of a conversation's messages and the cue, within the context window. */
  #prompt(conversation: Conversation): Row {
    const row = [...this.#row(conversation), { ids: this.format.cue(conversation), body: NOTHING }];
    const room = this.#contextLength - this.#reserve;
    if (rowLength(row) <= room) return row;
    this.#warnOnce();
    return this.format.truncate(conversation, row, room, this.#own);
  }

  readonly #own: OwnIds = ({ sampled }) =>
    sampled?.tokens === this.tokens ? sampled.ids.slice(0, sampled.kept) : null;

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

  #remember(message: Message, context: readonly number[], logprobs: readonly number[]): void {
    // Weights that change are scored anew each time.
    if (this.#options.version !== undefined) return;
    const known = scoredBy.get(this.model) ?? new WeakMap<Message, Scored>();
    scoredBy.set(this.model, known);
    known.set(message, { context, logprobs });
  }

  /** Log-probabilities of a message's ids, if these weights have scored it after the same context; else null. */
  #known(
    message: Message,
    context: readonly number[],
    continuation: readonly number[],
  ): readonly number[] | null {
    if (this.#options.version !== undefined) return null;
    const known = scoredBy.get(this.model)?.get(message);
    if (known === undefined || !isEqual(known.context, context)) return null;
    const { length } = continuation;
    return known.logprobs.length < length ? null : known.logprobs.slice(0, length);
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

  #warnOnce(): void {
    if (this.#truncated) return;
    this.#truncated = true;
    this.#options.onTruncate?.(
      `${this.name}: a conversation is longer than the model's window of ${this.#contextLength} tokens; ` +
        `the oldest tokens are dropped from here on (said once)`,
    );
  }
}

const isEqual = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((id, at) => id === b[at]);

const idsIn = (row: Row): readonly number[] => row.flatMap(({ ids }) => ids);

/** Span of a message's own ids in the flattened row. */
function bodyIn(row: Row, at: number): Span {
  const start = rowLength(row.slice(0, at));
  const [from, to] = row[at]!.body;
  return [start + from, start + to];
}
