import { describeValue, hasMethods, issueLine, UsageError, worded } from "@astra-rl/base";
import { AnswerError } from "@astra-rl/http";
import type { ToolCall } from "@astra-rl/lm";
import { DeadlineError, within } from "@astra-rl/method";
import { RESPONSE_NOTES, toolCallSchema, type Divergence } from "@astra-rl/records";
import { z } from "zod";
import {
  LimitError,
  NO_SPENDING,
  type Agent,
  type AgentReply,
  type Session,
  type Spending,
} from "./agent.js";
import type { SessionLedger } from "./session-ledger.js";
import type { SessionOptions } from "./session-options.js";

/** A message of the user in a session. */
export interface UserTurn {
  text: string;
  seed: number;
  injected: Readonly<Record<string, string>>;
}

const count = z.number().int().nonnegative();

// What has other keys may hide what was done, such as a result of another library.
const replySchema = z.strictObject({
  text: z.string(),
  calls: z.array(toolCallSchema.strict()).default([]),
  usage: z.object({ input: count, output: count }).optional(),
  note: z.enum(RESPONSE_NOTES).nullish(),
});

/** An answer that was checked. */
export interface CheckedReply {
  text: string;
  calls: readonly ToolCall[];
  usage: { input: number; output: number };
  note: AgentReply["note"];
}

/** What an agent returned is no answer. */
export class WrongReplyError extends Error {
  override name = "WrongReplyError";
}

/** The sessions that are not ended: one for two conversations would mix them up. */
const inUse = new WeakSet<Session>();

/** Milliseconds that ending a session may take. */
const CLOSING = 10_000;

/** A session with its limits, from its start to its end. */
export class OpenSession {
  #spent: Spending = NO_SPENDING;
  /** Where its answers differ from the conversation that it is in. */
  diverged: readonly Divergence[] = [];
  readonly #copying = new Set<Promise<unknown>>();
  #isClosed = false;
  /** Of the turn in progress: aborted when the session ends. */
  #turn = new AbortController();
  /** What it did in a turn that failed, as far as it is known. */
  done: readonly ToolCall[] = [];

  private constructor(
    readonly session: Session,
    private readonly agent: Agent,
    private readonly system: string | null,
    private readonly seed: number,
    private readonly limits: SessionOptions["limits"],
    private readonly ledger: SessionLedger,
    private readonly entry: number,
  ) {}

  static async start(
    agent: Agent,
    { seed, system }: { seed: number; system: string | null },
    limits: SessionOptions["limits"],
    ledger: SessionLedger,
  ): Promise<OpenSession> {
    const begun = (signal: AbortSignal) => Promise.resolve(agent.start({ seed, system, signal }));
    const [entry, session] = await noted(ledger, limits, "start of a session", begun);
    return new OpenSession(session, agent, system, seed, limits, ledger, entry);
  }

  /**
   * @throws LimitError, DeadlineError, WrongReplyError, and what the agent throws; then the state of the session is
   *   unknown, and it must be closed
   */
  async send({ text, seed, injected }: UserTurn): Promise<CheckedReply> {
    let reserved = NO_SPENDING;
    let refused: unknown = null;
    const spend = (cost: Partial<Spending>) => {
      try {
        reserved = reservedWith(reserved, cost);
        this.#charge(cost);
      } catch (error) {
        refused ??= error;
        throw error;
      }
    };
    const told: ToolCall[] = [];
    const called = (call: ToolCall) => {
      if (!toolCallSchema.safeParse(call).success) {
        throw new TypeError(`called: must be given {name, arguments}, got ${describeValue(call)}`);
      }
      told.push(call);
    };
    let given: unknown;
    try {
      given = await timed(
        this.limits.seconds,
        "answer",
        async (signal) => this.session.send(text, { seed, signal, injected, spend, called }),
        (this.#turn = new AbortController()),
      );
      // An agent may catch it, as frameworks do with errors of tools; its answer is none of an agent without limits.
      if (refused !== null) throw refused;
      const reply = replyOf(given, told);
      const large = reply.calls.find((call) => sizeOf(call) > MOST_CHARACTERS);
      if (large !== undefined) {
        throw new WrongReplyError(
          `a call of ${large.name} has ${sizeOf(large)} characters as JSON; arguments and result may have ${MOST_CHARACTERS}`,
        );
      }
      const tokens = reply.usage.input + reply.usage.output;
      this.#charge({
        calls: Math.max(0, reply.calls.length - reserved.calls),
        tokens: Math.max(0, tokens - reserved.tokens),
      });
      return reply;
    } catch (error) {
      this.done = callsOf(given, told).map(cut);
      throw refused ?? error;
    }
  }

  get canFork(): boolean {
    const { session } = this;
    return session.fork !== undefined || (session.snapshot !== undefined && session.restore !== undefined);
  }

  /** An independent session in the same state; requires `canFork`. */
  async fork(): Promise<OpenSession> {
    const { session, agent, system, seed, limits, ledger } = this;
    const copying = noted(ledger, limits, "fork of a session", async (signal) => {
      if (session.fork !== undefined) return session.fork(signal);
      const fresh = await agent.start({ seed, system, signal });
      await fresh.restore!(session.snapshot!());
      return fresh;
    });
    this.#copying.add(copying);
    const [entry, copy] = await copying.finally(() => this.#copying.delete(copying));
    const made = new OpenSession(copy, agent, system, seed, limits, ledger, entry);
    made.#spent = this.#spent;
    made.diverged = this.diverged;
    return made;
  }

  /** Ends it. What cannot be ended stays in the ledger. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#turn.abort(new Error("the session was ended"));
    inUse.delete(this.session);
    if (this.session.close === undefined) return;
    // What is being copied must not end before.
    await Promise.allSettled(this.#copying);
    try {
      await end(this.session);
      this.ledger.close(this.entry);
    } catch (error) {
      this.ledger.fail(this.entry, error);
    }
  }

  #charge(cost: Partial<Spending>): void {
    const total = plus(this.#spent, cost);
    for (const name of ["calls", "tokens", "dollars"] as const) {
      const limit = this.limits[name];
      if (limit === undefined || total[name] <= limit) continue;
      throw new LimitError(
        `limits.${name}: the session may have ${limit}, and this would make ${total[name]}`,
      );
    }
    this.#spent = total;
  }
}

/** @throws WrongReplyError for what is no amount, or returns more than was reserved, which would raise a limit */
function reservedWith(reserved: Spending, cost: Partial<Spending>): Spending {
  const total = plus(reserved, cost);
  for (const name of ["calls", "tokens", "dollars"] as const) {
    if (Number.isFinite(total[name]) && total[name] > -1e-9) continue;
    throw new WrongReplyError(
      `spend: ${name} must be a number, and return no more than the turn reserved (${reserved[name]}), got ${describeValue(cost[name])}`,
    );
  }
  return total;
}

const plus = (a: Spending, b: Partial<Spending>): Spending => ({
  calls: a.calls + (b.calls ?? 0),
  tokens: a.tokens + (b.tokens ?? 0),
  dollars: a.dollars + (b.dollars ?? 0),
});

/** A new session, which is in the ledger before it exists. */
async function noted(
  ledger: SessionLedger,
  { seconds }: SessionOptions["limits"],
  what: string,
  make: (signal: AbortSignal) => Promise<Session>,
): Promise<[entry: number, session: Session]> {
  const entry = ledger.open();
  try {
    const session = await timed(seconds, what, async (signal) => {
      const made = await make(signal);
      requireSession(what, made);
      inUse.add(made);
      ledger.name(entry, made.id);
      // After a kill, only those that something can end are left open.
      if (made.close === undefined) ledger.close(entry);
      // One that starts too late is of no use.
      else if (signal.aborted) await end(made).then(() => ledger.close(entry));
      return made;
    });
    return [entry, session];
  } catch (error) {
    if (mayHaveBegun(error)) ledger.fail(entry, error);
    else ledger.close(entry);
    throw error;
  }
}

/** Whether there may be a session although starting it failed: no answer, or half of one. */
function mayHaveBegun(error: unknown): boolean {
  if (error instanceof DeadlineError) return true;
  if (!(error instanceof AnswerError)) return false;
  return error.outcome !== "status" && error.options.isFree !== true;
}

/** @throws UsageError for what is no session */
function requireSession(what: string, made: unknown): asserts made is Session {
  const hint = "must give an object with the method send";
  if (!hasMethods(made, ["send"])) {
    throw new UsageError("wrong-result", `${what}: ${hint}, got ${describeValue(made)}`);
  }
  if (inUse.has(made as Session)) {
    throw new UsageError(
      "shared-session",
      `${what}: must give a new object each time, got one that another conversation uses`,
    );
  }
  const { id } = made as { id?: unknown };
  if (id === undefined || typeof id === "string") return;
  throw new UsageError("wrong-result", `${what}: ${hint} and an id that is a text, got ${describeValue(id)}`);
}

/** @throws what the agent throws, and DeadlineError */
async function end(session: Session): Promise<void> {
  const signal = AbortSignal.timeout(CLOSING);
  await within(CLOSING, "end of a session", Promise.resolve(session.close?.(signal)));
}

/**
 * Awaits a step of an agent, whose signal is aborted if it takes too long.
 *
 * @param late aborted from outside where the step is no longer wanted
 * @throws DeadlineError
 */
async function timed<T>(
  seconds: number,
  what: string,
  step: (signal: AbortSignal) => Promise<T>,
  late = new AbortController(),
): Promise<T> {
  const promised = step(late.signal);
  // An agent may not listen.
  const ended = new Promise<never>((_, reject) => {
    late.signal.addEventListener("abort", () => reject(late.signal.reason as Error), { once: true });
  });
  // If they fail later, nobody waits for them.
  for (const each of [promised, ended]) each.catch(() => {});
  try {
    return await within(1000 * seconds, what, Promise.race([promised, ended]));
  } catch (error) {
    if (error instanceof DeadlineError) late.abort(error);
    throw error;
  }
}

/**
 * @param told calls that it told of before
 * @throws WrongReplyError
 */
function replyOf(given: unknown, told: readonly ToolCall[]): CheckedReply {
  const parsed = replySchema.safeParse(typeof given === "string" ? { text: given } : given, {
    error: worded,
  });
  if (!parsed.success) {
    const line = issueLine(parsed.error.issues[0]!, given, "its answer");
    throw new WrongReplyError(
      `an agent answers a text or {text, calls: [{name, arguments, result, error}], usage, note}; ${line}`,
    );
  }
  const { text, usage = { input: 0, output: 0 }, note = null } = parsed.data;
  return { text, calls: callsOf(given, told), usage, note };
}

/** All calls of a turn, told or in its reply, whatever else the reply is. What is no call is left out. */
function callsOf(given: unknown, told: readonly ToolCall[]): ToolCall[] {
  const { calls } = (typeof given === "object" && given !== null ? given : {}) as { calls?: unknown };
  const listed = (Array.isArray(calls) ? calls : []).flatMap(callOf);
  const others = listed.map(asked);
  const unlisted = told.flatMap(callOf).filter((call) => {
    const at = others.indexOf(asked(call));
    if (at >= 0) others.splice(at, 1);
    return at < 0;
  });
  return [...unlisted, ...listed];
}

const asked = ({ name, arguments: given }: ToolCall) => JSON.stringify([name, given]);

/** A copy, since the agent may change its own objects later; without an outcome that is none. */
function callOf(given: unknown): ToolCall[] {
  const { name, arguments: asked, result, error } = (given ?? {}) as Partial<ToolCall>;
  const found = [{ result, error }, {}]
    .map((outcome) => toolCallSchema.safeParse({ name, arguments: asked, ...outcome }))
    .find(({ success }) => success);
  return found?.data === undefined ? [] : [JSON.parse(JSON.stringify(found.data)) as ToolCall];
}

/** Maximum length of a call's arguments and result together, as JSON. */
export const MOST_CHARACTERS = 2 ** 20;

const sizeOf = ({ arguments: given, result = null }: ToolCall): number =>
  JSON.stringify(given).length + JSON.stringify(result).length;

/** A call that is too large, without its result, and with the beginning of its arguments as a text if these are. */
function cut(call: ToolCall): ToolCall {
  if (sizeOf(call) <= MOST_CHARACTERS) return call;
  const { result: _, ...made } = call;
  if (sizeOf(made) <= MOST_CHARACTERS) return made;
  return { ...made, arguments: JSON.stringify(made.arguments).slice(0, MOST_CHARACTERS) };
}

/** Whether calls are the first ones of others, with the same arguments. */
export const isBeginning = (calls: readonly ToolCall[], of: readonly ToolCall[]): boolean =>
  calls.every((call, at) => of[at] !== undefined && asked(call) === asked(of[at]));
