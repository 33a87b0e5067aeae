import { UsageError } from "@astra-rl/torch";
import type { Line, Piece } from "../format/conversation-format.js";
import type { GenerationSession } from "../generation/session.js";
import type { DrawKey } from "../generation/keyed-random.js";
import type { LocalSpeaker } from "./local-speaker.js";

/** One utterance as it was sampled. */
export interface Spoken {
  text: string;
  /** Sampled ids, the one that ended the utterance included. */
  ids: readonly number[];
  /** How many of the ids stay in the conversation: an end id without text does not. */
  kept: number;
  /** log P of each id under the full distribution, temperature 1. */
  logprobs: readonly number[];
  /** What the model had before it when it spoke; shortened where its window was full. */
  context: readonly number[];
}

/** What a model read, and what it thought of it. */
export interface Heard {
  /** Ids of the row before those that were added; shortened where the window was full. */
  context: readonly number[];
  /** Ids that were added, scaffold included. */
  ids: readonly number[];
  /** Which of them are no scaffold: from, to. */
  body: readonly [from: number, to: number];
  /** log P of the body's ids; empty where not asked for. */
  logprobs: readonly number[];
}

/** Names the draws of an utterance; the stream is the speaker's. */
export type SpeakKey = Omit<DrawKey, "stream"> & {
  /** Another number gives other draws of the same node. Default 0. */
  draw?: number;
};

interface Row {
  lines: readonly Line[];
  /** What each line wrote. */
  pieces: readonly Piece[];
}

/**
 * Conversations with a model of this process: rows of lines in a format, over a session that reads nothing twice.
 *
 * A row's ids are those of its pieces, less what a full window dropped behind the pinned ids.
 */
export class LocalConversation {
  readonly #speaker: LocalSpeaker;
  readonly #session: GenerationSession;
  readonly #rows: Row[];

  private constructor(speaker: LocalSpeaker, session: GenerationSession, rows: Row[]) {
    this.#speaker = speaker;
    this.#session = session;
    this.#rows = rows;
  }

  /** Rows that begin with these lines; equal ones are read once. Used by LocalSpeaker.open. */
  static open(speaker: LocalSpeaker, starts: readonly (readonly Line[])[]): LocalConversation {
    const rows = starts.map((lines) => ({ lines, pieces: written(speaker, [], lines) }));
    const places = new Map<string, number>();
    const distinct: number[][] = [];
    const children = rows.map(({ pieces }) => {
      const ids = idsOf(pieces);
      const key = ids.join();
      const place = places.get(key) ?? distinct.push(ids) - 1;
      places.set(key, place);
      return place;
    });
    const session = speaker.openSession(distinct);
    try {
      const open = new LocalConversation(speaker, forked(session, children), rows);
      open.#standIns();
      return open;
    } catch (error) {
      session.dispose();
      throw error;
    }
  }

  /** A row that is empty begins with an id that stands for nothing; from here on it is the opening's. */
  #standIns(): void {
    const held = this.#session.rows();
    this.#rows.forEach((row, at) => {
      if (idsOf(row.pieces).length > 0) return;
      const ids = held[at]!;
      row.pieces = row.pieces.map((piece, line) => (line === 0 ? { ids, body: [0, ids.length] } : piece));
    });
  }

  get rowCount(): number {
    return this.#rows.length;
  }

  lines(row: number): readonly Line[] {
    return this.#rows[row]!.lines;
  }

  ids(row: number): number[] {
    return this.#session.rows()[row]!;
  }

  fork(rows: readonly number[], { consume = false }: { consume?: boolean } = {}): LocalConversation {
    const session = consume ? forked(this.#session, rows) : this.#session.fork(rows);
    return new LocalConversation(
      this.#speaker,
      session,
      rows.map((row) => ({ ...this.#rows[row]! })),
    );
  }

  hear(
    added: readonly (readonly Line[])[],
    { score = true }: { score?: boolean } = {},
  ): Promise<Heard[]> {
    checkRows("hear", added, this.#rows.length);
    const before = this.#session.rows();
    const heard = this.#rows.map((row, at) => {
      const pieces = written(this.#speaker, row.lines, added[at]!);
      row.lines = [...row.lines, ...added[at]!];
      row.pieces = [...row.pieces, ...pieces];
      return { ids: idsOf(pieces), body: bodyOf(pieces, added[at]!) };
    });
    const logprobs = this.#session.read(
      heard.map(({ ids }) => ids),
      { score: score ? heard.map(({ body }) => (body[0] === body[1] ? [] : [body])) : false },
    );
    // Reading may have dropped ids from the left of what stood before.
    const after = this.#session.rows();
    return Promise.resolve(
      heard.map((piece, at) => ({
        ...piece,
        context:
          piece.ids.length === 0 ? before[at]! : after[at]!.slice(0, after[at]!.length - piece.ids.length),
        logprobs: logprobs[at]!,
      })),
    );
  }

  speak(keys: readonly SpeakKey[]): Promise<Spoken[]> {
    checkRows("speak", keys, this.#rows.length);
    const { sampling, name } = this.#speaker;
    const named = keys.map(({ draw = 0, ...key }): DrawKey => {
      return { ...key, stream: draw === 0 ? name : `${name}/${draw}` };
    });
    const { ids, text, logprobs, kept } = this.#session.generate(sampling, named);
    const rows = this.#session.rows();
    return Promise.resolve(
      this.#rows.map((row, at) => {
        const staying = ids[at]!.slice(0, kept[at]);
        row.lines = [...row.lines, { voice: "self", text: text[at]!, ids: staying }];
        row.pieces = [...row.pieces, { ids: staying, body: [0, staying.length] }];
        return {
          text: text[at]!,
          ids: ids[at]!,
          kept: kept[at]!,
          logprobs: logprobs[at]!,
          context: rows[at]!.slice(0, rows[at]!.length - staying.length),
        };
      }),
    );
  }

  peek(ids: readonly (number | null)[]): Promise<(number | null)[]> {
    return Promise.resolve(ids.every((id) => id === null) ? ids.map(() => null) : this.#session.peek(ids));
  }

  settle(rows: readonly (readonly Line[])[]): Promise<void> {
    checkRows("settle", rows, this.#rows.length);
    const held = this.#session.rows();
    let changed = false;
    const ids = this.#rows.map((row, at) => {
      const lines = rows[at]!;
      const common = sharedLines(row.lines, lines);
      if (common === lines.length && common === row.lines.length) return held[at]!;
      changed = true;
      const full = idsOf(row.pieces);
      const kept = row.pieces.slice(0, common);
      const pieces = [...kept, ...written(this.#speaker, lines.slice(0, common), lines.slice(common))];
      row.lines = [...lines];
      row.pieces = pieces;
      const wanted = idsOf(pieces);
      // What the window has dropped stays dropped, where it lies in what both have in common.
      const pinned = this.#speaker.pinned;
      const dropped = Math.max(0, full.length - held[at]!.length);
      if (dropped === 0 || pinned + dropped > idsOf(kept).length) return wanted;
      return [...wanted.slice(0, pinned), ...wanted.slice(pinned + dropped)];
    });
    if (changed) this.#session.rewrite(ids);
    return Promise.resolve();
  }

  close(): void {
    this.#session.dispose();
  }
}

/** What lines write behind others. */
function written({ format }: LocalSpeaker, lines: readonly Line[], added: readonly Line[]): Piece[] {
  const before = [...lines];
  return added.map((line) => {
    const piece = format.append(before, line);
    if (piece === null) {
      throw new UsageError(`${format.name}: writes earlier lines otherwise once others follow`);
    }
    before.push(line);
    return piece;
  });
}

const idsOf = (pieces: readonly Piece[]): number[] => pieces.flatMap((piece) => piece.ids);

/** From the first to the last id that is no scaffold, counted from the first of the pieces' ids. */
function bodyOf(pieces: readonly Piece[], lines: readonly Line[]): [from: number, to: number] {
  let from = -1;
  let to = 0;
  let start = 0;
  pieces.forEach(({ ids, body }, at) => {
    if (lines[at]!.scaffold !== true) {
      if (from < 0) from = start + body[0];
      to = start + body[1];
    }
    start += ids.length;
  });
  return from < 0 ? [start, start] : [from, to];
}

/** Lines that both begin with: the same text from the same ids. */
function sharedLines(a: readonly Line[], b: readonly Line[]): number {
  let at = 0;
  while (at < a.length && at < b.length && isSame(a[at]!, b[at]!)) at += 1;
  return at;
}

function isSame(a: Line, b: Line): boolean {
  if (a === b) return true;
  if (a.text !== b.text || a.voice !== b.voice || a.scaffold !== b.scaffold) return false;
  return a.ids === b.ids || (a.ids !== undefined && b.ids !== undefined && a.ids.join() === b.ids.join());
}

/** The session with these of its rows, in this order; the one that was given is used up. */
function forked(session: GenerationSession, rows: readonly number[]): GenerationSession {
  if (rows.length === session.rowCount && rows.every((row, index) => row === index)) return session;
  return session.fork(rows, { consume: true });
}

function checkRows(what: string, given: readonly unknown[], rows: number): void {
  if (given.length === rows) return;
  throw new UsageError(
    `LocalConversation.${what}: expected one entry for each of ${rows} rows, got ${given.length}`,
  );
}
