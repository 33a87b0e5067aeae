import { isGradEnabled, noGrad } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import { Codec } from "../format/codec.js";
import { PlainFormat, type Format, type Span } from "../format/format.js";
import type { DrawKey } from "../generation/keyed-random.js";
import { GenerationSession, standIn } from "../generation/session.js";
import type { Sampling } from "../generation/sampling.js";
import type { CacheBudget } from "../generation/session-budget.js";
import { WorkCounters } from "../generation/session-counters.js";
import { tokenOutputs, type ScoredRow, type TokenOutputs, type TokenOutputsOptions } from "../logprobs.js";
import type { Tokenizer } from "../tokenizer.js";
import { Message, type Conversation } from "./conversation.js";
import { PrefixCache } from "./prefix-cache.js";

/** Names the draws of a message; the stream is the model's. */
export type SampleKey = Omit<DrawKey, "stream"> & {
  /** Another number gives other draws of the same node. Default 0. */
  draw?: number;
};

export interface LocalModelOptions {
  /** Whose messages are its own. */
  role: "tester" | "target";
  /** The weights that generate and read; asked for at each use, since they may move to another copy. */
  model: () => CausalLM;
  /** Another number once the weights have changed. Default: they never do. */
  version?: () => number;
  tokenizer: Tokenizer;
  sampling: Sampling;
  /** Limit on the memory of key/value caches, which several models may share. */
  cacheBudget: CacheBudget;
  /** How conversations are read. Default: messages follow each other, nothing between them. */
  format?: Format;
  /** Told once when text had to be dropped at the left of a full window. */
  onTruncate?: (message: string) => void;
  /** Frees what belongs to the model. */
  onDispose?: () => void;
}

/** What the weights are asked beside what to say. */
export interface ScoreOptions {
  /** By row, a message of the conversation whose log P will be asked for; null for none. */
  score?: readonly (Message | null)[];
  /** Whether it will be asked for with the silent end of the message. Default false. */
  ends?: boolean;
}

/** How a model reads a conversation in which a message is scored. */
export interface Reading {
  /** Ids before the message and what is put around it. */
  readonly context: readonly number[];
  /** From there to the end. */
  readonly heard: readonly number[];
  /** The message's own within `heard`; empty where the conversation has no such message. */
  readonly body: Span;
}

/** A conversation as ids: those that it may share with others, and those that are read of it alone. */
interface Row {
  readonly ids: readonly number[];
  /** What the shared ids say. */
  readonly base: Conversation;
  /** How many are shared. */
  readonly length: number;
  /** Those of the message that is scored. */
  readonly body: Span;
  /** null: nothing is scored. */
  readonly message: Message | null;
}

const NOTHING: Span = [0, 0];

interface View {
  readonly ids: readonly number[];
  /** Ids that the last message added. */
  readonly added: number;
  /** The last message's own, counted from the end of `ids`. */
  readonly body: Span;
}

/** What frozen weights thought of a message: log P of the ids that stay, and of the silent end where it was looked up. */
interface Scored {
  readonly context: readonly number[];
  readonly logprobs: readonly number[];
}

/** By weights, so that models that share them share what is known. */
const scoredBy = new WeakMap<CausalLM, WeakMap<Message, Scored>>();

/**
 * A language model of this process: a function of conversations. What it has read it keeps until `release`, so that nothing
 * is read twice; that changes no result.
 */
export class LocalModel {
  readonly role: "tester" | "target";
  readonly tokenizer: Tokenizer;
  readonly codec: Codec;
  /** Whose ids its messages have. */
  readonly tokens: string;
  readonly format: Format;
  readonly sampling: Sampling;
  readonly tellsLikelihood = true;
  readonly #options: LocalModelOptions;
  readonly #cache = new PrefixCache();
  readonly #views = new WeakMap<Conversation, View>();
  readonly #sessions = new WorkCounters();
  readonly #contextLength: number;
  readonly #standIn: () => number;
  #cached: { model: CausalLM; version: number } | null = null;
  #scored = 0;
  #trained = 0;
  #truncated = false;

  /** @param name in messages, and the stream of its draws */
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
    // Asking for the weights may bring a copy up to date; their sizes never change.
    const model = options.model();
    this.#contextLength = model.config.contextLength;
    this.#standIn = () => standIn(model);
  }

  get model(): CausalLM {
    return this.#options.model();
  }

  /** Work done so far, in tokens. */
  get work(): { read: number; generated: number; trained: number } {
    return {
      read: this.#sessions.tokensRead + this.#scored,
      generated: this.#sessions.tokensGenerated,
      trained: this.#trained,
    };
  }

  /**
   * The model's next message in each conversation, drawn by the key of its row; the messages to `score` are scored while they are
   * read, so that `logprobs` costs nothing then.
   */
  async generate(
    conversations: readonly Conversation[],
    { keys, score, ends = false }: { keys: readonly SampleKey[] } & ScoreOptions,
  ): Promise<Message[]> {
    this.#dropStale();
    const rows = conversations.map((conversation, at): Row => {
      const message = score?.[at] ?? null;
      const split = message === null ? null : this.#split(conversation, message);
      if (split?.fits === true) return { ...split, message };
      const ids = this.prompt(conversation);
      const length = ids.length - this.format.cue(conversation).length;
      return { ids, base: conversation, length, body: NOTHING, message: null };
    });
    // Siblings share what stands before the message that is scored: it is read once.
    const distinct: { conversation: Conversation; ids: readonly number[] }[] = [];
    const places = new Map<Conversation, Map<number, number>>();
    const baseOf = rows.map(({ ids, base, length }) => {
      const known = places.get(base) ?? new Map<number, number>();
      places.set(base, known);
      const place = known.get(length) ?? distinct.push({ conversation: base, ids: ids.slice(0, length) }) - 1;
      known.set(length, place);
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
        // Nobody else has those whose turn never came.
        for (const { session: rest } of groups.slice(group + 1)) rest.dispose();
        session.dispose();
        throw error;
      }
    }
    return messages;
  }

  /** log P of the ids of a message after each conversation, without gradients; of a message of its own with its end. */
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
   * log P of messages after conversations under weights that are being trained, and what else is wanted: [B, T] with a
   * gradient where gradients are on; otherwise it counts as read.
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

  /** A conversation and a message that follows it as ids to be scored; a message of its own with the end that it drew. */
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
    // Nothing has to be said behind it: the window is the message's.
    const { ids, body } = this.view(whole);
    return rowOf(ids, [ids.length - body[0], ids.length - body[1]]);
  }

  /** Ids of a conversation, whatever the window: messages in the model's own tokens as they were sampled. */
  view(conversation: Conversation): View {
    const known = this.#views.get(conversation);
    if (known !== undefined) return known;
    const { parent, last } = conversation;
    const { ids: own, kept } = last.sampled?.tokens === this.tokens ? last.sampled : { ids: null, kept: 0 };
    const piece = this.format.write(parent, last, own?.slice(0, kept) ?? null);
    const before =
      parent === null ? [] : last.from === this.role ? this.prompt(parent) : this.view(parent).ids;
    let ids = parent === null ? piece.ids : [...before, ...piece.ids];
    // A row has at least one id.
    if (ids.length === 0) ids = [this.#standIn()];
    const { length } = piece.ids;
    const view = { ids, added: length, body: [length - piece.body[0], length - piece.body[1]] as const };
    this.#views.set(conversation, view);
    return view;
  }

  /** What the model reads before it says its next message: the oldest ids are dropped where its window is full. */
  prompt(conversation: Conversation): readonly number[] {
    const { ids } = this.view(conversation);
    const cue = this.format.cue(conversation);
    const whole = cue.length === 0 ? ids : [...ids, ...cue];
    const room = this.#contextLength - this.#reserve;
    if (whole.length <= room) return whole;
    this.#warnOnce();
    const { pinned } = this.format;
    return [...whole.slice(0, pinned), ...whole.slice(pinned + whole.length - room)];
  }

  /** How the model reads a conversation in which a message is scored. */
  reading(conversation: Conversation, message: Message): Reading {
    const split = this.#split(conversation, message);
    if (split === null) return { context: this.prompt(conversation), heard: [], body: NOTHING };
    const { ids, length, body } = split;
    const heard = [body[0] - length, body[1] - length] as const;
    return { context: ids.slice(0, length), heard: ids.slice(length), body: heard };
  }

  /** Ids of a message in the model's own tokens: those that were drawn, or what its tokenizer makes of the text. */
  idsOf(message: Message): { ids: readonly number[]; kept: number } {
    if (message.sampled?.tokens === this.tokens) return message.sampled;
    const ids = this.codec.continue(message.text);
    return { ids, kept: ids.length };
  }

  /** Whether both are the same frozen weights, so that what one thinks of ids the other thinks too. */
  sharesWeights(other: unknown): boolean {
    return other instanceof LocalModel && other.model === this.model;
  }

  /** Frees what was kept so that nothing is read twice. */
  release(): void {
    this.#cache.release();
  }

  dispose(): void {
    this.release();
    this.#options.onDispose?.();
  }

  /** Tokens of the window that are left free for the model's message. */
  get #reserve(): number {
    return Math.min(this.sampling.maxNewTokens, this.#contextLength - 1);
  }

  /** What was read under other weights is of no use. */
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
   * A conversation in two, before a message with what is around it, and from there on. null where the message is not in it. It
   * does not fit where the window, with room for an answer, cuts into it.
   */
  #split(
    conversation: Conversation,
    message: Message,
  ): (Omit<Row, "message"> & { readonly fits: boolean }) | null {
    const base = conversation.before(message);
    if (base === null) return null;
    const ids = this.prompt(conversation);
    let tail = this.format.cue(conversation).length;
    let body: Span = NOTHING;
    for (let at = conversation; at !== base; at = at.parent!) {
      const view = this.view(at);
      if (at.last === message) body = [tail + view.body[0], tail + view.body[1]];
      tail += view.added;
    }
    const least = Math.max(1, this.format.pinned);
    const fits = ids.length - tail >= least;
    const length = fits ? ids.length - tail : Math.min(least, ids.length);
    const place = (fromEnd: number) => Math.max(length, ids.length - fromEnd);
    return { ids, base, length, body: [place(body[0]), place(body[1])], fits };
  }

  /** Reads what stands behind the bases of some rows, and notes what the model thinks of the messages in it. */
  #read(session: GenerationSession, rows: readonly Row[], ends: boolean): void {
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
    // A silent end is no part of what is read: it is looked up where the reading stopped.
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
    // Weights that change are asked anew each time.
    if (this.#options.version !== undefined) return;
    const known = scoredBy.get(this.model) ?? new WeakMap<Message, Scored>();
    scoredBy.set(this.model, known);
    known.set(message, { context, logprobs });
  }

  /** log P of a message's ids after a context, where these weights have read it there. */
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
        // A special token that stays in the conversation is part of what was said, and is spelled out.
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
