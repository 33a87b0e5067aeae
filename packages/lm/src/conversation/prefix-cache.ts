import type { GenerationSession } from "../generation/session.js";
import type { Conversation } from "./conversation.js";

/** A session whose rows may be continued. */
interface Entry {
  readonly session: GenerationSession;
  /** What each row holds. */
  readonly conversations: readonly Conversation[];
  /** Rows that nothing has continued yet. */
  readonly waiting: Set<number>;
}

interface Held {
  readonly entry: Entry;
  readonly row: number;
}

/** Sessions that are kept at most: calls outside of a rollout release nothing. */
const MOST_SESSIONS = 64;

/**
 * What a model has read, by conversation. It may change how fast something is, never what it is: a row that is found is
 * rewritten to the ids that are wanted, of which it keeps what both have in common.
 *
 * Looking up costs as many steps as a conversation has messages, however many rows are kept.
 */
export class PrefixCache {
  readonly #entries = new Set<Entry>();
  /** Rows that end with a conversation. */
  #ends = new WeakMap<Conversation, Held>();
  /** Rows that go through a conversation, the latest of each. */
  #through = new WeakMap<Conversation, Held>();

  /**
   * Sessions whose rows hold exactly the wanted ids; the caller's from here on.
   *
   * @param wanted conversations and their ids; the ids may be fewer than the conversation has where a window is full
   * @param open makes a session of rows of which nothing is kept
   */
  take(
    wanted: readonly { conversation: Conversation; ids: readonly number[] }[],
    open: (rows: readonly (readonly number[])[]) => GenerationSession,
  ): { session: GenerationSession; at: number[] }[] {
    const again = new Set(wanted.map(({ conversation }) => conversation));
    const groups = new Map<Entry | null, { at: number[]; rows: number[]; whole: boolean[] }>();
    wanted.forEach(({ conversation }, at) => {
      const held = this.#find(conversation);
      const group = groups.get(held?.entry ?? null) ?? { at: [], rows: [], whole: [] };
      groups.set(held?.entry ?? null, group);
      group.at.push(at);
      group.rows.push(held?.row ?? -1);
      group.whole.push(held?.whole ?? false);
    });
    return [...groups].map(([entry, { at, rows, whole }]) => {
      const ids = at.map((index) => wanted[index]!.ids);
      if (entry === null) return { session: open(ids), at };
      rows.forEach((row, i) => whole[i]! && entry.waiting.delete(row));
      // Rows neither continued nor sampled from again. Keeping a session for a minority of its rows would hold the memory of all of
      // them, so they are dropped, and read again if they are needed.
      const left = [...entry.waiting].filter((row) => !again.has(entry.conversations[row]!.parent!));
      const isLast = left.length < rows.length;
      if (isLast) this.#entries.delete(entry);
      const isWhole = rows.length === entry.session.rowCount && rows.every((row, i) => row === i);
      const session = isLast && isWhole ? entry.session : entry.session.fork(rows, { consume: isLast });
      session.rewrite(ids);
      return { session, at };
    });
  }

  /** Keeps the rows of a session, each of which holds a conversation. */
  keep(session: GenerationSession, conversations: readonly Conversation[]): void {
    const entry: Entry = { session, conversations, waiting: new Set(conversations.keys()) };
    this.#entries.add(entry);
    conversations.forEach((conversation, row) => {
      const held = { entry, row };
      this.#ends.set(conversation, held);
      for (let at = conversation.parent; at !== null; at = at.parent) this.#through.set(at, held);
    });
    for (const oldest of this.#entries) {
      if (this.#entries.size <= MOST_SESSIONS) break;
      this.#entries.delete(oldest);
      oldest.session.dispose();
    }
  }

  release(): void {
    for (const { session } of this.#entries) session.dispose();
    this.#entries.clear();
    this.#ends = new WeakMap();
    this.#through = new WeakMap();
  }

  /** The row of the nearest beginning of a conversation: one that ends there before one that goes on. */
  #find(conversation: Conversation): (Held & { whole: boolean }) | null {
    for (let at: Conversation | null = conversation; at !== null; at = at.parent) {
      for (const rows of [this.#ends, this.#through]) {
        const held = rows.get(at);
        if (held !== undefined && this.#entries.has(held.entry))
          return { ...held, whole: rows === this.#ends };
      }
    }
    return null;
  }
}
