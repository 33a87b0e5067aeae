import type { GenerationSession } from "../generation/session.js";
import type { Conversation } from "./conversation.js";

/** A session whose rows may be continued. */
interface Entry {
  readonly session: GenerationSession;
  /** The conversation in each row. */
  readonly conversations: readonly Conversation[];
  /** Rows that have not been continued yet. */
  readonly waiting: Set<number>;
}

interface Held {
  readonly entry: Entry;
  readonly row: number;
}

/** Maximum number of cached sessions: calls outside a rollout release nothing. */
const MOST_SESSIONS = 64;

/**
 * Key/value caches of a model, by conversation. The cache affects speed, never results: a cached row is
 * rewritten to the requested ids and keeps only their common prefix.
 *
 * A lookup takes time proportional to the number of messages in the conversation, independent of the number
 * of cached rows.
 */
export class PrefixCache {
  readonly #entries = new Set<Entry>();
  /** Rows that end with a conversation. */
  #ends = new WeakMap<Conversation, Held>();
  /** Rows that contain a conversation as a proper prefix; the latest one for each. */
  #through = new WeakMap<Conversation, Held>();

  /**
   * Sessions whose rows hold exactly the requested ids. The caller owns them.
   *
   * @param wanted conversations and their ids, which may have been truncated to the context window
   * @param open creates a session for rows of which nothing is cached
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
      // `left` are rows neither continued nor sampled from again. Keeping a session for a minority of its
      // rows would hold the memory of all of them, so these are dropped, and prefilled again if needed.
      const left = [...entry.waiting].filter((row) => !again.has(entry.conversations[row]!.parent!));
      const isLast = left.length < rows.length;
      if (isLast) this.#entries.delete(entry);
      const isWhole = rows.length === entry.session.rowCount && rows.every((row, i) => row === i);
      const session = isLast && isWhole ? entry.session : entry.session.fork(rows, { consume: isLast });
      session.rewrite(ids);
      return { session, at };
    });
  }

  /** Stores a session, with the conversation in each of its rows. */
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

  /** A row for the longest cached prefix of a conversation. Rows that end there are preferred to longer ones. */
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
