import { rowLength, type Format, type OwnIds, type Row, type Span } from "../format/format.js";
import type { Conversation, Message } from "./conversation.js";

/** A conversation as ids: a prefix that other rows may share, then the row's own ids. */
export interface SplitRow {
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

export const NOTHING: Span = [0, 0];

export interface ConversationRowsOptions {
  format: Format;
  role: "tester" | "target";
  /** Fingerprint of the tokenizer. */
  tokens: string;
  /** Ids that a prompt may have, so that an answer fits. */
  room: number;
  /** The id of an empty text. */
  standIn: () => number;
  /** Called whenever ids are dropped. */
  onTruncate: () => void;
}

/** Conversations as token ids, as one model reads them. Messages in its tokens keep their sampled ids. */
export class ConversationRows {
  readonly #options: ConversationRowsOptions;
  readonly #rows = new WeakMap<Conversation, Row>();
  readonly #own: OwnIds;

  constructor(options: ConversationRowsOptions) {
    this.#options = options;
    this.#own = ({ sampled }) =>
      sampled?.tokens === options.tokens ? sampled.ids.slice(0, sampled.kept) : null;
  }

  /**
   * Splits a conversation before a message and the context around it; null if the message is not in it.
   * `fits` is false if the context window, with room for an answer, cuts into the first part.
   */
  split(
    conversation: Conversation,
    message: Message,
  ): (Omit<SplitRow, "message"> & { readonly fits: boolean }) | null {
    const base = conversation.before(message);
    if (base === null) return null;
    const row = this.prompt(conversation);
    const ids = idsIn(row);
    const before = rowLength(row.slice(0, base.depth));
    const least = Math.max(1, this.#options.format.pinned);
    const fits = before >= least;
    const length = fits ? before : Math.min(least, ids.length);
    const at = conversation.messages().indexOf(message, base.depth);
    const [from, to] = at < 0 ? NOTHING : bodyIn(row, at);
    return { ids, base, length, body: [Math.max(length, from), Math.max(length, to)], fits };
  }

  /** Pieces of a conversation's messages, regardless of the context window. */
  row(conversation: Conversation): Row {
    const known = this.#rows.get(conversation);
    if (known !== undefined) return known;
    const row = this.#layout(conversation);
    this.#rows.set(conversation, row);
    return row;
  }

  #layout(conversation: Conversation): Row {
    const { parent, last } = conversation;
    if (this.#options.format.layout !== undefined)
      return this.#options.format.layout(conversation, this.#own);
    const piece = this.#options.format.write(conversation, this.#own(last));
    if (parent === null) {
      // A row needs at least one id.
      return piece.ids.length === 0 ? [{ ids: [this.#options.standIn()], body: [0, 0] }] : [piece];
    }
    if (last.from !== this.#options.role) return [...this.row(parent), piece];
    // What the model was prompted with stays: what was dropped then, and the cue.
    const prompt = this.prompt(parent);
    const cue = prompt.at(-1)!.ids;
    const [from, to] = piece.body;
    const said = { ids: [...cue, ...piece.ids], body: [from + cue.length, to + cue.length] as const };
    return [...prompt.slice(0, -1), said];
  }

  /** Pieces of a conversation's messages and the cue, within the context window. */
  prompt(conversation: Conversation): Row {
    const row = [...this.row(conversation), { ids: this.#options.format.cue(conversation), body: NOTHING }];
    const room = this.#options.room;
    if (rowLength(row) <= room) return row;
    this.#options.onTruncate();
    return this.#options.format.truncate(conversation, row, room, this.#own);
  }
}

export const idsIn = (row: Row): readonly number[] => row.flatMap(({ ids }) => ids);

/** Span of a message's own ids in the flattened row. */
export function bodyIn(row: Row, at: number): Span {
  const start = rowLength(row.slice(0, at));
  const [from, to] = row[at]!.body;
  return [start + from, start + to];
}
