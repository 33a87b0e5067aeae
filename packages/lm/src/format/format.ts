import type { Conversation, From, Message } from "../conversation/conversation.js";
import type { Codec } from "./codec.js";
import { preambleOf } from "./voices.js";

/** Range of ids, `from` inclusive, `to` exclusive. */
export type Span = readonly [from: number, to: number];

/** Ids that a message adds to a row. */
export interface Piece {
  readonly ids: readonly number[];
  /** Range of the message's own text within `ids`; the rest is template tokens and never scored. */
  readonly body: Span;
}

/** A conversation as ids, one piece per message; the cue before a next message, if any, is one more. */
export type Row = readonly Piece[];

/** The ids of a message as this model sampled them, or another one with the same tokenizer; null for a text. */
export type OwnIds = (message: Message) => readonly number[] | null;

/**
 * How one model reads conversations: the ids that each message adds, and the cue before the model's own next message.
 */
export interface Format {
  /** Number of leading ids that truncation keeps in every row. */
  readonly pinned: number;
  /** Ids that end a generation, in addition to the model's own. */
  readonly endIds: readonly number[];
  /**
   * The ids that the last message of a conversation adds. The model's own messages follow the `cue`, which is not
   * included. Those of the first message include what a tester reads of the goal.
   *
   * @param own its sampled ids, if they are in this model's tokens
   */
  write(conversation: Conversation, own: readonly number[] | null): Piece;
  /** Ids between a conversation and the model's own next message. */
  cue(conversation: Conversation): readonly number[];
  /**
   * The whole conversation, for a template that writes earlier messages otherwise than it wrote them when they were the
   * last. Absent: a conversation's row begins with the row of its parent.
   */
  layout?(conversation: Conversation, own: OwnIds): Row;
  /**
   * Drops ids so that at most `room` are left.
   *
   * @param row the pieces of a conversation's messages, followed by a cue or not
   */
  truncate(conversation: Conversation, row: Row, room: number, own: OwnIds): Row;
}

export const EMPTY_PIECE: Piece = { ids: [], body: [0, 0] };

export const rowLength = (row: Row): number => row.reduce((sum, { ids }) => sum + ids.length, 0);

/** Drops ids `from` (inclusive) to `to` (exclusive) of a row, counted from its start. */
export function dropIds(row: Row, from: number, to: number): Row {
  let start = 0;
  return row.map((piece) => {
    const { ids, body } = piece;
    const within = (at: number) => Math.min(Math.max(at - start, 0), ids.length);
    const [first, last] = [within(from), within(to)];
    start += ids.length;
    if (first === last) return piece;
    const shifted = (at: number) => (at <= first ? at : Math.max(first, at - (last - first)));
    return {
      ids: [...ids.slice(0, first), ...ids.slice(last)],
      body: [shifted(body[0]), shifted(body[1])],
    };
  });
}

function rootOf(conversation: Conversation): Conversation {
  let at = conversation;
  while (at.parent !== null) at = at.parent;
  return at;
}

export interface PlainOptions {
  /** The role of the model. Needed with labels or a separator. Default "tester". */
  role?: "tester" | "target";
  /** Text before a message, by its origin, such as `{ tester: "User: ", target: "Bot: " }`. Default: nothing. */
  labels?: Readonly<Partial<Record<From, string>>>;
  /** Text between two messages, such as "\n". Default: nothing. */
  separator?: string;
  /** Text with `{goal}` that a tester reads before a conversation with a goal. Default: "Goal: {goal}" and a line feed. */
  preamble?: string;
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
  readonly #preamble: string | undefined;

  constructor(
    readonly codec: Codec,
    { role = "tester", labels = {}, separator = "", preamble }: PlainOptions = {},
  ) {
    this.#role = role;
    this.#labels = labels;
    this.#separator = separator;
    this.#preamble = preamble;
  }

  /** Whether labels or a separator tell where a message ends. */
  get isMarked(): boolean {
    return this.#separator !== "" || Object.values(this.#labels).some((label) => label !== "");
  }

  get pinned(): number {
    return this.codec.prefix.length;
  }

  write(conversation: Conversation, own: readonly number[] | null): Piece {
    const { codec } = this;
    const { from, text } = conversation.last;
    const before = conversation.parent;
    const isPut = from === "around" || from === this.#role;
    const label = this.#opening(conversation) + (isPut ? "" : this.#front(before, from));
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

  /** Drops the oldest ids after the pinned ones and the goal. */
  truncate(conversation: Conversation, row: Row, room: number): Row {
    const opening = this.#opening(rootOf(conversation));
    const start =
      opening === ""
        ? this.pinned
        : Math.min(this.codec.begin(opening).length, Math.max(this.pinned, room - 1));
    return dropIds(row, start, start + Math.max(0, rowLength(row) - room));
  }

  /** What precedes the first message. */
  #opening({ parent, goal }: Conversation): string {
    return parent === null ? preambleOf(this.#role, this.#preamble, goal) : "";
  }

  #front(before: Conversation | null, from: From): string {
    return (before === null ? "" : this.#separator) + (this.#labels[from] ?? "");
  }

  #encode(before: Conversation | null, text: string): readonly number[] {
    if (text === "") return [];
    return before === null ? this.codec.begin(text) : this.codec.continue(text);
  }
}
