import type { Conversation, From, Message } from "../conversation/conversation.js";
import type { Codec } from "./codec.js";

/** Range of ids, `from` inclusive, `to` exclusive. */
export type Span = readonly [from: number, to: number];

/** Ids that a message adds to a row. */
export interface Piece {
  readonly ids: readonly number[];
  /** Range of the message's own text within `ids`; the rest is template tokens and never scored. */
  readonly body: Span;
}

/**
 * How one model reads conversations: the ids that each message adds, and the cue before the model's own next message.
 */
export interface Format {
  /** Number of leading ids that truncation keeps in every row. */
  readonly pinned: number;
  /** Ids that end a generation, in addition to the model's own. */
  readonly endIds: readonly number[];
  /**
   * The ids that a message adds. The model's own messages follow the `cue`, which is not included.
   *
   * @param before the conversation that it follows; null for the first message
   * @param own its sampled ids, if they are in this model's tokens
   */
  write(before: Conversation | null, message: Message, own: readonly number[] | null): Piece;
  /** Ids between a conversation and the model's own next message. */
  cue(conversation: Conversation): readonly number[];
}

export interface PlainOptions {
  /** The role of the model. Needed with labels or a separator. Default "tester". */
  role?: "tester" | "target";
  /** Text before a message, by its origin, such as `{ tester: "User: ", target: "Bot: " }`. Default: nothing. */
  labels?: Readonly<Partial<Record<From, string>>>;
  /** Text between two messages, such as "\n". Default: nothing. */
  separator?: string;
}

/**
 * Concatenates messages as plain text. Ids of messages are unchanged: a message boundary is always a boundary
 * between ids.
 */
export class PlainFormat implements Format {
  readonly endIds: readonly number[] = [];
  readonly #role: "tester" | "target";
  readonly #labels: Readonly<Partial<Record<From, string>>>;
  readonly #separator: string;

  constructor(
    readonly codec: Codec,
    { role = "tester", labels = {}, separator = "" }: PlainOptions = {},
  ) {
    this.#role = role;
    this.#labels = labels;
    this.#separator = separator;
  }

  get pinned(): number {
    return this.codec.prefix.length;
  }

  write(before: Conversation | null, { from, text }: Message, own: readonly number[] | null): Piece {
    const { codec } = this;
    const isPut = from === "around" || from === this.#role;
    const label = isPut ? "" : this.#front(before, from);
    const front = this.#encode(before, label);
    // The first text of a row starts with the tokenizer's prefix.
    const isFirst = before === null && label === "";
    const ids = own ?? (isFirst ? codec.begin(text).slice(codec.prefix.length) : codec.continue(text));
    const start = isFirst ? codec.prefix : front;
    return { ids: [...start, ...ids], body: [start.length, start.length + ids.length] };
  }

  cue(conversation: Conversation): readonly number[] {
    return this.#encode(conversation, this.#front(conversation, this.#role));
  }

  #front(before: Conversation | null, from: From): string {
    return (before === null ? "" : this.#separator) + (this.#labels[from] ?? "");
  }

  #encode(before: Conversation | null, text: string): readonly number[] {
    if (text === "") return [];
    return before === null ? this.codec.begin(text) : this.codec.continue(text);
  }
}
