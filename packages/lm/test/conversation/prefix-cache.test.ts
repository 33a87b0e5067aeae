import { liveTensors } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Conversation, Message } from "../../src/conversation/conversation.js";
import { PrefixCache } from "../../src/conversation/prefix-cache.js";
import type { GenerationSession } from "../../src/index.js";
import { useGolden } from "../generation/session-setup.js";
import { goldenFolder } from "../golden/gpt2.js";

const golden = useGolden(goldenFolder);
const said = (text: string) => new Message("tester", text);

let cache: PrefixCache;
/** Ids of a conversation: three for each message. */
let idsOf: (conversation: Conversation) => readonly number[];
beforeEach(() => {
  cache = new PrefixCache();
  const known = new Map<Message, readonly number[]>();
  idsOf = (conversation) =>
    conversation.messages().flatMap((message) => {
      if (!known.has(message)) known.set(message, golden.prompts([3])[0]!);
      return known.get(message)!;
    });
});
afterEach(() => cache.release());

/**
 * Opens rows that end with these conversations, and prefills pending ids; returns the number of ids prefilled per
 * session.
 */
function take(...conversations: Conversation[]) {
  const wanted = conversations.map((conversation) => ({ conversation, ids: idsOf(conversation) }));
  let opened = 0;
  const taken = cache.take(wanted, (rows) => {
    opened += rows.length;
    return golden.open(rows);
  });
  const read = taken.map(({ session, at }) => {
    expect(session.rows()).toEqual(at.map((index) => wanted[index]!.ids));
    const before = session.tokensRead;
    session.prefill();
    return session.tokensRead - before;
  });
  return { taken, opened, read: read.reduce((sum, each) => sum + each, 0) };
}

/** Opens them and puts them back. */
function keep(...conversations: Conversation[]) {
  const { taken, ...rest } = take(...conversations);
  for (const { session, at } of taken)
    cache.keep(
      session,
      at.map((index) => conversations[index]!),
    );
  return rest;
}

const dispose = (taken: readonly { session: GenerationSession }[]) => {
  for (const { session } of taken) session.dispose();
};

describe("cached rows of a model", () => {
  const start = Conversation.of("start");
  const [a, b] = [start.append(said("a")), start.append(said("b"))];

  it("are opened together if none of their ids are cached", () => {
    const { taken, opened, read } = take(a, b);
    expect(taken.map(({ at }) => at)).toEqual([[0, 1]]);
    expect(opened).toBe(2);
    // Both contain the same prefix, which a session may prefill once.
    expect(read).toBeLessThanOrEqual(12);
    dispose(taken);
  });

  it("continue with a longer conversation, which prefills only the new ids", () => {
    keep(a, b);
    const [longer, other] = [a.append(said("more")), b.append(said("more"))];
    expect(keep(longer, other)).toEqual({ opened: 0, read: 6 });
    // In another order, singly, and both from one.
    expect(keep(other.append(said("x")))).toEqual({ opened: 0, read: 3 });
    expect(keep(longer.append(said("y")), longer.append(said("z")))).toEqual({ opened: 0, read: 6 });
  });

  it("are found again after they were continued: as a prefix of a longer row", () => {
    keep(a);
    keep(a.append(said("more"), said("and more")));
    // A row prefills at most its last id again.
    const { opened, read } = keep(a.append(said("else")));
    expect(opened).toBe(0);
    expect(read).toBe(3);
    // A prefix with which no row ever ended.
    const begun = take(start.append(said("other")));
    expect([begun.opened, begun.read]).toEqual([0, 3]);
    dispose(begun.taken);
  });

  it("hold exactly the requested ids, and keep the common prefix", () => {
    keep(a);
    const ids = idsOf(a);
    const conversation = a.append(said("more"));
    const windowed = ids.slice(2);
    const wanted = [{ conversation, ids: windowed }];
    const taken = cache.take(wanted, golden.open);
    expect(taken.map(({ session }) => session.rows())).toEqual([[windowed]]);
    dispose(taken);
  });

  it("are owned by the caller: a session is handed over when its last row is continued", () => {
    const empty = liveTensors();
    keep(a, b);
    const held = liveTensors();
    const first = take(a.append(said("one")));
    expect(liveTensors()).toBeGreaterThan(held);
    const second = take(b.append(said("two")));
    // Nothing remains.
    dispose([...first.taken, ...second.taken]);
    expect(liveTensors()).toBe(empty);
    expect(keep(b.append(said("three"))).opened).toBe(1);
  });

  it("come from several sessions if cached separately, each row at its index", () => {
    const other = Conversation.of("other");
    keep(a);
    keep(b);
    const wanted = [b.append(said("1")), other, a.append(said("2")), b.append(said("3"))];
    const { taken, opened } = take(...wanted);
    expect(taken.map(({ at }) => at)).toEqual([[0, 3], [1], [2]]);
    expect(opened).toBe(1);
    dispose(taken);
  });

  it("prefer the row that ends with a conversation to one that contains it", () => {
    keep(a);
    keep(a.append(said("through")));
    // Prefilled again and cached: a row that ends with a.
    const again = golden.open([idsOf(a)]);
    cache.keep(again, [a]);
    const { taken } = take(a);
    expect(taken[0]!.session).toBe(again);
    dispose(taken);
  });

  it("form one session for any number of further draws from the same conversations", () => {
    const empty = liveTensors();
    const draws = (text: string) => [start, b, a].map((each) => each.append(said(text)));
    keep(...draws("0"));
    const one = liveTensors() - empty;
    for (const text of ["1", "2", "3"]) {
      const again = take(start, b, a);
      expect(again.opened).toBe(0);
      dispose(again.taken);
      keep(...draws(text));
      expect(liveTensors() - empty).toBe(one);
    }
    // Drawing a few again does not affect the others.
    const few = take(start);
    expect(few.opened).toBe(0);
    dispose(few.taken);
    expect(keep(a.append(said("3"))).opened).toBe(0);
  });

  it("are freed with their session once most of it was continued, and prefilled again if requested", () => {
    const [c, d, e] = ["c", "d", "e"].map((text) => start.append(said(text))) as [
      Conversation,
      Conversation,
      Conversation,
    ];
    const empty = liveTensors();
    keep(c, d, e);
    const { taken } = take(c.append(said("1")), d.append(said("1")));
    dispose(taken);
    expect(liveTensors()).toBe(empty);
    expect(keep(e.append(said("1"))).opened).toBe(1);
  });

  it("are freed by release, and prefilled again afterwards", () => {
    const empty = liveTensors();
    keep(a, b);
    expect(liveTensors()).toBeGreaterThan(empty);
    cache.release();
    expect(liveTensors()).toBe(empty);
    cache.release();
    expect(keep(a).opened).toBe(1);
  });

  it("belong to at most 64 sessions, the latest ones", () => {
    const conversations = Array.from({ length: 70 }, (_, at) => Conversation.of(`number ${at}`));
    const empty = liveTensors();
    keep(conversations[0]!);
    const each = liveTensors() - empty;
    for (const conversation of conversations.slice(1)) keep(conversation);
    expect(liveTensors() - empty).toBe(64 * each);
    expect(keep(conversations[5]!).opened).toBe(1);
    expect(keep(conversations[69]!).opened).toBe(0);
  });
});
