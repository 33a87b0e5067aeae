import type { Codec } from "./codec.js";

/**
 * Who a line of a conversation is from, seen by one model: "self" is the model itself and "other" whoever it talks with;
 * "opening" is what the conversation begins with, said by nobody; "system" tells the model what it is to be.
 */
export type Voice = "system" | "opening" | "self" | "other";

export interface Line {
  voice: Voice;
  text: string;
  /** In the vocabulary of the format's model: ids that were sampled, or heard unchanged; absent = from the text. */
  ids?: readonly number[];
  /** Nobody's utterance: the model reads it, and it is never scored. */
  scaffold?: true;
}

/** Ids from `from` up to but without `to`. */
export type Span = readonly [from: number, to: number];

/** Ids that a line adds to a row. */
export interface Piece {
  ids: number[];
  /** The line's own text within `ids`; the rest is scaffold. */
  body: Span;
}

/** A whole row. */
export interface Layout {
  ids: number[];
  /** By line: its own text within `ids`. */
  bodies: Span[];
  /** So many leading ids may never be dropped. */
  pinned: number;
}

/**
 * How a conversation is written for one model: which ids it reads for which line, and what stands between lines
 * (scaffold: never likely or unlikely by anybody's doing, so that it is not scored).
 *
 * A row that ends with a line of the model itself ends with that line's text: as the model has left it. Any other row ends
 * where the next line can begin.
 */
export interface ConversationFormat {
  readonly name: string;
  readonly codec: Codec;
  /** Ids that end an utterance, beside the model's own. */
  readonly endIds: readonly number[];
  /** What one more line adds to the row of some; null where the earlier lines are then written otherwise than before. */
  append(lines: readonly Line[], line: Line): Piece | null;
  /** The row of some lines. */
  layout(lines: readonly Line[]): Layout;
  /** The lines without what has to be left out so that their row fits a window and leaves so much room behind it. */
  fit(lines: readonly Line[], window: number, room: number): Line[];
}
