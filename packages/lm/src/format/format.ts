import type { Conversation, From, Message } from "../conversation/conversation.js";
import type { Codec } from "./codec.js";

/** Ids from `from` up to but without `to`. */
export type Span = readonly [from: number, to: number];

/** Ids that a message adds to a row. */
export interface Piece {
  readonly ids: readonly number[];
  /** The message's own text within `ids`; the rest is the format's and never scored. */
  readonly body: Span;
}

/** How one model reads conversations: which ids each message adds, and what stands before the model's own next one. */
export interface Format {
  /** Leading ids of every row that a full window leaves in place. */
  readonly pinned: number;
  /** Ids that end an utterance, beside the model's own. */
  readonly endIds: readonly number[];
  /**
   * What a message adds. The model's own stands behind the `cue`, which is not part of it.
   *
   * @param before what it follows; null for the first
   * @param own its ids, where they are known in the model's tokens
   */
  write(before: Conversation | null, message: Message, own: readonly number[] | null): Piece;
  /** What stands between a conversation and the model's own next message. */
  cue(conversation: Conversation): readonly number[];
}

export interface PlainOptions {
  /** Whose reading it is. Needed with labels or a separator. Default "tester". */
  role?: "tester" | "target";
  /** What stands in front of a message, by who it is from, such as `{ tester: "User: ", target: "Bot: " }`. Default: nothing. */
  labels?: Readonly<Partial<Record<From, string>>>;
  /** What stands between two messages, such as "\n". Default: nothing. */
  separator?: string;
}

/**
 * Messages follow each other as one text. Its ids are those of the messages, unchanged: where the text was cut into
 * messages, there is a cut between ids.
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
    // The first text of a row brings the tokenizer's prefix.
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
