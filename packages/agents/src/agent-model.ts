import { createHash } from "node:crypto";
import { setMaxListeners } from "node:events";
import { parseOptions, UsageError } from "@astra-rl/base";
import {
  AnswerError,
  CLOCK,
  Limiter,
  together,
  type Answer,
  type AnswerJournal,
  type Reply,
  type ServedModel,
} from "@astra-rl/http";
import type { Conversation, Message, ToolCall } from "@astra-rl/lm";
import {
  DeadlineError,
  isRecordable,
  NotedMessage,
  within,
  type GenerateOptions,
  type Model,
  type NodeKey,
  type Work,
} from "@astra-rl/method";
import type { Divergence, Failure } from "@astra-rl/records";
import type { z } from "zod";
import { LimitError, LostSessionError, type Agent } from "./agent.js";
import { isBeginning, OpenSession, WrongReplyError, type CheckedReply } from "./open-session.js";
import { heard, type Asked } from "./said.js";
import { SessionCache } from "./session-cache.js";
import { SessionLedger, type LeftOpen } from "./session-ledger.js";
import { sessionOptions, type SessionOptions } from "./session-options.js";

export type AgentModelOptions = z.input<typeof sessionOptions>;

/** What became of the sessions of a model. */
export interface SessionCounts {
  started: number;
  forked: number;
  /** Answers before which a new session was told an earlier conversation. */
  replayed: number;
  /** Answers whose session differs from the conversation. */
  diverged: number;
}

/** An answer, and the session that gave it; null for one from the journal. */
interface Answered extends Pick<CheckedReply, "text" | "calls" | "note"> {
  diverged: readonly Divergence[];
  session: OpenSession | null;
}

/** A conversation that is asked. */
interface Row extends Asked {
  conversation: Conversation;
  identity: string;
  /** The journal's; undefined if it has none. */
  reply: Reply | undefined;
}

/** The session that a row continues. */
interface Source {
  /** When `take` may be called. */
  ready: Promise<unknown>;
  /** null if there is none; called once. */
  take: () => Promise<OpenSession | null>;
}

/** Milliseconds that ending waits for sessions that are just starting. */
const MOST_WAITING = 5000;

/** How often a session that the agent lost is replaced without counting as an attempt. */
const MOST_LOST = 3;

/**
 * An agent as a model: a function from conversations to messages, with sessions as its cache. A session that is in the
 * conversation's state is continued or forked; otherwise a new one is told the conversation again. Where it then answers
 * otherwise than before, this is counted and noted on the answer (`diverged`): its own session, not the recorded
 * conversation, is what the answer and its children follow from.
 *
 * Equal keys and conversations give equal messages within a run, from the run's journal.
 */
export class AgentModel implements Model {
  readonly role = "target";
  readonly tellsLikelihood = false;
  readonly callsTools: boolean;
  readonly work: Work = { read: 0, generated: 0 };
  readonly counts: SessionCounts = { started: 0, forked: 0, replayed: 0, diverged: 0 };
  readonly options: SessionOptions;
  ledger: SessionLedger;
  #journal: AnswerJournal | null = null;
  #setting = "";
  readonly #cache: SessionCache;
  readonly #places: Limiter;
  /** The sessions that answer, and the answers that are awaited. */
  readonly #atWork = new Set<OpenSession>();
  readonly #answers = new Set<Promise<unknown>>();
  /** How often it was closed: an answer from before is not tried again. */
  #closings = 0;
  /** Never aborted. */
  readonly #calm = new AbortController().signal;

  /** @throws UsageError for invalid options */
  constructor(
    readonly name: string,
    readonly agent: Agent,
    given: AgentModelOptions = {},
    where = name,
  ) {
    this.options = parseOptions(where, sessionOptions, given);
    this.callsTools = agent.tellsCalls ?? true;
    this.ledger = new SessionLedger(name);
    this.#cache = new SessionCache(this.options.open);
    this.#places = new Limiter(this.options.concurrency, CLOCK);
    // Each row that waits listens to it.
    setMaxListeners(0, this.#calm);
  }

  /** The models of servers that the agent uses. */
  get served(): readonly ServedModel[] {
    return this.agent.served ?? [];
  }

  /**
   * Keeps answers in a journal, and sessions in a ledger. Call it before anything is generated.
   *
   * @param setting identifies the agent: answers of another one in the journal are not reused
   */
  keepSessions(journal: AnswerJournal, ledger: SessionLedger, setting = ""): void {
    this.#journal = journal;
    this.ledger = ledger;
    this.#setting = setting;
  }

  async generate(
    conversations: readonly Conversation[],
    { keys }: GenerateOptions,
  ): Promise<(Message | Failure)[]> {
    // Those of the last rollout end first, so that no more are open than may be.
    await this.#cache.settled();
    const rows = conversations.map((conversation, row): Row => {
      const asked = heard(conversation, keys[row]!, this.options.channel?.tool ?? null);
      const identity = this.#identity(asked, keys[row]!);
      return { ...asked, conversation, identity, reply: this.#journal?.reply(identity) };
    });
    const sources = this.#sourcesOf(rows);
    return together(
      rows.map((row, index) => {
        const answer = this.#message(row, sources[index]!);
        this.#answers.add(answer);
        const forget = () => void this.#answers.delete(answer);
        answer.then(forget, forget);
        return answer;
      }),
    );
  }

  /** Ends all sessions, in the background. */
  release(): void {
    this.#cache.clear();
    this.agent.release?.();
  }

  dispose(): void {
    this.release();
    this.agent.dispose?.();
  }

  /**
   * Ends all sessions, those that are answering included. @returns those that could not be ended, earlier processes'
   * included
   */
  async closed(): Promise<readonly LeftOpen[]> {
    this.#closings++;
    for (const session of this.#atWork) this.#cache.end(session);
    const answered = Promise.allSettled(this.#answers);
    await Promise.race([answered, new Promise((resolve) => setTimeout(resolve, MOST_WAITING).unref())]);
    this.release();
    await this.#cache.settled();
    return this.ledger.notEnded;
  }

  /** Ends the sessions that earlier processes left open, where the agent can. @returns those that are still open */
  async endLeftOpen(): Promise<readonly LeftOpen[]> {
    const limit = 1000 * this.options.limits.seconds;
    for (const { entry, session } of this.ledger.left) {
      if (session === null || this.agent.end === undefined) continue;
      try {
        await within(limit, "end of a session", this.agent.end(session, AbortSignal.timeout(limit)));
        this.ledger.close(entry);
      } catch (error) {
        this.ledger.fail(entry, error);
      }
    }
    return this.ledger.notEnded;
  }

  /**
   * Where each row's session comes from: the last row that continues a conversation takes its session, the others fork it
   * before; a row without one replays.
   */
  #sourcesOf(rows: readonly Row[]): Source[] {
    const families = new Map<Conversation, number[]>();
    for (const [index, { before, reply }] of rows.entries()) {
      if (before === null || reply !== undefined) continue;
      families.set(before, [...(families.get(before) ?? []), index]);
    }
    const sources = rows.map((): Source => ({ ready: Promise.resolve(), take: () => Promise.resolve(null) }));
    for (const [before, members] of families) {
      const forked = members.slice(0, -1).map((index) => {
        let done = () => {};
        const made = new Promise<void>((resolve) => (done = resolve));
        sources[index]!.take = () => this.#fork(before).finally(done);
        return made;
      });
      // A session is continued only after all forks were made from its state.
      sources[members.at(-1)!] = {
        ready: Promise.all(forked),
        take: () => Promise.resolve(this.#cache.take(before)),
      };
    }
    return sources;
  }

  /** A fork of the session that is in a conversation; null if there is none, or if it cannot be made. */
  async #fork(before: Conversation): Promise<OpenSession | null> {
    const session = this.#cache.peek(before);
    if (session?.canFork !== true) return null;
    try {
      const fork = await session.fork();
      this.counts.forked++;
      return fork;
    } catch (error) {
      // The conversation is replayed instead, unless this is no failure of an agent.
      failureOf(error, 1, this.options.retry);
      return null;
    }
  }

  async #message(row: Row, source: Source): Promise<Message | Failure> {
    const { reply } = row;
    if (reply?.failure !== undefined) return reply.failure;
    const made = reply === undefined ? await this.#answer(row, source) : fromJournal(reply.answer);
    if ("stage" in made) return made;
    const { text, calls, note, diverged, session } = made;
    if (diverged.length > 0) this.counts.diverged++;
    const message = new NotedMessage("target", text, { note, calls, diverged });
    if (session !== null) this.#cache.put(row.conversation.append(message), session);
    return message;
  }

  /** @throws what is no failure of an agent, such as an error in its code */
  async #answer(row: Row, { ready, take }: Source): Promise<Answered | Failure> {
    const closings = this.#closings;
    const requireOpen = () => {
      if (this.#closings > closings) throw new Error("the agent's sessions have been ended");
    };
    await ready;
    let session: OpenSession | null = null;
    let isReplayed = false;
    for (let [tried, lost, isFirst] = [1, 0, true]; ; tried++) {
      try {
        const reply = await this.#working(async () => {
          if (isFirst) session = await take();
          isFirst = false;
          requireOpen();
          isReplayed = session === null;
          const own = (session ??= await this.#start(row));
          this.#atWork.add(own);
          try {
            requireOpen();
            if (isReplayed) await this.#replay(own, row);
            return await own.send(row.turns.at(-1)!);
          } finally {
            this.#atWork.delete(own);
          }
        });
        const { text, calls, note, usage } = reply;
        this.work.read += usage.input;
        this.work.generated += usage.output;
        const made = { text, calls, note, diverged: session!.diverged, session };
        await this.#keep(row.identity, made, usage);
        return made;
      } catch (error) {
        const calls = session === null ? [] : doneIn(session, isReplayed);
        if (session !== null) this.#cache.end(session);
        session = null;
        if (this.#closings > closings) return failureOf(error, tried, this.options.retry).failure;
        if (error instanceof LostSessionError && calls.length === 0 && lost++ < MOST_LOST) {
          tried--;
          continue;
        }
        const { failure, isFinal, wait } = failureOf(error, tried, this.options.retry);
        // What was done stays done: another attempt would hide it, and do it again.
        if (calls.length > 0) {
          const all = { ...failure, calls };
          await this.#keepFailure(row.identity, all);
          return all;
        }
        if (isFinal || tried >= this.options.retry.attempts) {
          if (error instanceof LimitError) await this.#keepFailure(row.identity, failure);
          return failure;
        }
        if (wait !== null) await CLOCK.sleep(wait, this.#calm);
      }
    }
  }

  async #start({ system, seed }: Asked): Promise<OpenSession> {
    const session = await OpenSession.start(this.agent, { seed, system }, this.options.limits, this.ledger);
    this.counts.started++;
    return session;
  }

  /** Tells a new session the conversation. */
  async #replay(session: OpenSession, { turns }: Asked): Promise<void> {
    if (turns.length === 1) return;
    this.counts.replayed++;
    for (const [index, { answer, ...turn }] of turns.slice(0, -1).entries()) {
      const { text, calls, usage } = await session.send(turn).catch((error: unknown) => {
        // What is recorded already is not done anew.
        if (isBeginning(session.done, answer!.calls)) session.done = [];
        throw error;
      });
      this.work.read += usage.input;
      this.work.generated += usage.output;
      if (text === answer!.text && JSON.stringify(calls) === JSON.stringify(answer!.calls)) continue;
      const other = { answer: index + 1, text, ...(calls.length === 0 ? {} : { calls }) };
      session.diverged = [...session.diverged, other];
    }
  }

  async #working<T>(step: () => Promise<T>): Promise<T> {
    const place = await this.#places.enter(this.#calm);
    try {
      return await step();
    } finally {
      this.#places.leave(place, null);
    }
  }

  /** Everything that an answer depends on. */
  #identity({ system, turns }: Asked, { seed, episode, node, draw = 0 }: NodeKey): string {
    const said = turns.map(({ text, injected, answer }) => [text, injected, answer]);
    const value = ["agent", this.name, this.#setting, [seed, episode, node, draw], system, said];
    return createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 22);
  }

  async #keep(request: string, made: Answered, usage: Answer["usage"]): Promise<void> {
    const { text, note = null, calls, diverged } = made;
    const actions = { calls: [...calls], diverged: [...diverged] };
    const answer: Answer = { text, note, ending: "complete", usage, logprobs: null, ...actions };
    await this.#journal?.keep(this.name, request, { answer });
  }

  async #keepFailure(request: string, failure: Failure): Promise<void> {
    await this.#journal?.keep(this.name, request, { failure, usage: null });
  }
}

/** What a session did in a turn that failed, and in the replay before it. */
function doneIn({ done, diverged }: OpenSession, isReplayed: boolean): readonly ToolCall[] {
  return [...(isReplayed ? diverged.flatMap(({ calls = [] }) => calls) : []), ...done];
}

function fromJournal({ text, note, calls = [], diverged = [] }: Answer): Answered {
  return { text, note, calls, diverged, session: null };
}

/** @throws the error, if it is none of an agent */
function failureOf(
  error: unknown,
  attempts: number,
  { delay, maxWait }: SessionOptions["retry"],
): { failure: Failure; isFinal: boolean; wait: number | null } {
  const failure = (cause: Failure["cause"], rest: Partial<Failure> = {}): Failure => ({
    stage: "target",
    message: error instanceof Error ? error.message : String(error),
    attempts,
    ...(cause === undefined ? {} : { cause }),
    ...rest,
  });
  if (error instanceof LimitError) return { failure: failure("limit"), isFinal: true, wait: null };
  // What answers too late may still be at work: another attempt would only add to it.
  if (error instanceof DeadlineError) return { failure: failure("timeout"), isFinal: true, wait: null };
  if (error instanceof WrongReplyError) return { failure: failure("answer"), isFinal: false, wait: null };
  if (error instanceof LostSessionError)
    return { failure: failure("connection"), isFinal: false, wait: null };
  if (error instanceof AnswerError) {
    const { isFinal = false, stops = false, wait } = error.options;
    if (stops) throw new UsageError("account-refused", error.message, { cause: error });
    const own = 1000 * delay * 2 ** (attempts - 1);
    return {
      failure: failure(error.outcome),
      isFinal,
      wait: Math.min(Math.max(own, wait ?? 0), 1000 * maxWait),
    };
  }
  if (!isRecordable(error)) throw error;
  return { failure: failure(undefined), isFinal: false, wait: null };
}
