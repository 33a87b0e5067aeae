import { setMaxListeners } from "node:events";
import { AstraError, UsageError } from "@astra-rl/base";
import { AnswerError, retryAfter, type Answer, type Reply, type Usage } from "./answer.js";
import { Budget, type Cost } from "./budget.js";
import { dialectOf, type Dialect } from "./dialects/index.js";
import type { AnswerJournal } from "./journal.js";
import { CLOCK, Limiter, type Clock } from "./limiter.js";
import { readCredentials, redactor, type ServerOptions } from "./options.js";

/** Dependencies that tests replace. */
export interface ServerSurroundings {
  clock?: Clock;
  environment?: Readonly<Record<string, string | undefined>>;
}

/** A request, and its maximum cost. */
export interface ServerRequest {
  body: Record<string, unknown>;
  most: Usage;
  /** Identifies the request in the journal; absent for one that is not stored. */
  identity?: string;
  /** Total number of attempts, at most those of the options. Default: those of the options. */
  attempts?: number;
  /** Default: that of the options. */
  dialect?: Dialect;
}

/** Larger bodies are refused. */
const MOST_BYTES = 8 << 20;

const FREE: Usage = { input: 0, output: 0 };

/**
 * One model of a server: retries failed calls, adapts to the server's load, and enforces a budget.
 *
 * Node.js's `fetch` is used rather than the `openai` package, whose timeout ends with the headers, whose waits cannot be
 * interrupted and have no limit, and which accepts HTML with status 200 as an answer.
 */
export class Server {
  readonly dialect: Dialect;
  /** Of the API, without slashes at its end. */
  readonly baseURL: string;
  readonly budget: Budget;
  readonly redact: (text: string) => string;
  /** Calls and their answers; null before the run folder exists. */
  journal: AnswerJournal | null = null;
  /** Under which its calls are in the journal: that of no other server. */
  account: string;
  /** Answers without token counts; each counts at its maximum cost. */
  uncounted = 0;
  /** The server's name of its model; answers of another one are refused. */
  model: string | null = null;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #limiter: Limiter;
  readonly #end = new AbortController();

  /**
   * @param where begins messages: the key of its section
   * @throws UsageError for an environment variable that is not set
   */
  constructor(
    readonly where: string,
    readonly options: ServerOptions,
    { clock = CLOCK, environment }: ServerSurroundings = {},
  ) {
    this.dialect = dialectOf(options.api);
    const { headers, secrets } = readCredentials(where, options, environment);
    // Each call in flight listens to it.
    setMaxListeners(0, this.#end.signal);
    this.baseURL = (options.baseURL ?? this.dialect.provider.baseURL).replace(/\/+$/, "");
    this.#headers = { ...headers, "content-type": "application/json", accept: "application/json" };
    this.redact = redactor(secrets);
    this.#clock = clock;
    this.#limiter = new Limiter(options.concurrency, clock);
    this.account = where;
    this.budget = new Budget(where, options.budget, options.price);
  }

  /**
   * Sends the request until there is an answer or the attempts are used up.
   *
   * @throws BudgetError before a limit is exceeded; UsageError for a key or an account that the server refuses
   */
  async ask(request: ServerRequest): Promise<Reply> {
    const attempts = Math.min(this.options.retry.attempts, request.attempts ?? Infinity);
    for (let tried = 1; ; tried++) {
      const result = await this.#attempt(request, tried);
      if (!(result instanceof AnswerError)) return { answer: result };
      const { isFinal = false, wait = null, stops = false } = result.options;
      if (stops) {
        const message = this.redact(result.message);
        throw new UsageError(
          "account-refused",
          `${this.where}: ${this.#urlOf(request)} refuses to serve this account: ${message}`,
        );
      }
      if (isFinal || tried >= attempts) return this.#replyOf(result, tried);
      await this.#clock.sleep(this.#waitAfter(tried, wait), this.#end.signal);
    }
  }

  /** Aborts waits and calls in flight. */
  dispose(): void {
    this.#end.abort(new AstraError(`${this.where}: was disposed of while it waited for the server`));
  }

  #urlOf({ dialect = this.dialect }: ServerRequest): string {
    return `${this.baseURL}/${dialect.path}`;
  }

  #replyOf(result: Answer | AnswerError, attempts: number): Reply {
    if (!(result instanceof AnswerError)) return { answer: result };
    const { outcome: cause, options } = result;
    const message = `${this.options.model}: ${this.redact(result.message)}`;
    const usage = options.isFinal === true ? (options.usage ?? null) : null;
    return { failure: { stage: "target", message, attempts, cause }, usage };
  }

  /** Doubles with each attempt and varies by a quarter, so that rows that failed together are not retried together. */
  #waitAfter(tried: number, asked: number | null): number {
    const { delay, maxWait } = this.options.retry;
    const own = 1000 * delay * 2 ** (tried - 1) * (0.75 + Math.random() / 2);
    return Math.min(Math.max(own, asked ?? 0), 1000 * maxWait);
  }

  /** One call: waits for a slot, reserves its cost, sends the request, and records the actual cost. */
  async #attempt(request: ServerRequest, tried: number): Promise<Answer | AnswerError> {
    const { most, identity } = request;
    const reserved: Cost = { calls: 1, ...most };
    const place = await this.#limiter.enter(this.#end.signal);
    let pause: number | null = null;
    try {
      await this.budget.reserve(reserved);
      let used = reserved;
      try {
        const call = (await this.journal?.reserve(this.account, reserved)) ?? 0;
        const result = await this.#send(request);
        const { isFinal = true, isFree = false, isOverloaded = false, usage, wait = null } = traitsOf(result);
        used = { calls: 1, ...(isFree ? FREE : (usage ?? most)) };
        if (!(result instanceof AnswerError) && result.usage === null) this.uncounted++;
        const isKept = identity !== undefined && isFinal;
        const kept = isKept ? { request: identity, reply: this.#replyOf(result, tried) } : undefined;
        await this.journal?.settle(call, used, kept);
        if (isOverloaded) pause = Math.min(wait ?? 0, 1000 * this.options.retry.maxWait);
        return result;
      } finally {
        this.budget.settle(reserved, used);
      }
    } finally {
      this.#limiter.leave(place, pause);
    }
  }

  async #send(request: ServerRequest): Promise<Answer | AnswerError> {
    // One deadline for headers and body.
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), 1000 * this.options.timeout);
    const signal = AbortSignal.any([late.signal, this.#end.signal]);
    try {
      const response = await fetch(this.#urlOf(request), {
        method: "POST",
        headers: this.#headers,
        body: JSON.stringify(request.body),
        // A redirect could take the key to another host.
        redirect: "manual",
        signal,
      });
      const text = await readBody(response);
      const wait = retryAfter(response.headers, this.#clock.now());
      // Secrets are removed before server output is read, truncated or stored.
      const parsed = withoutSecrets(jsonOf(text), this.redact);
      const { dialect = this.dialect } = request;
      if (response.status !== 200) {
        return dialect.failure(response.status, parsed ?? this.redact(text), wait);
      }
      if (parsed === undefined) {
        return new AnswerError(`no JSON with status 200: ${this.redact(text).trim().slice(0, 80)}`, "answer");
      }
      const answer = dialect.read(parsed, this.model);
      if (this.model === null) this.model = modelOf(parsed);
      const { tokens: spelled } = answer;
      const whole = spelled?.tokens.join("") ?? "";
      if (this.redact(whole) === whole) return answer;
      // A secret in several tokens.
      const { tokens: _, ...rest } = answer;
      return rest;
    } catch (error) {
      if (error instanceof AnswerError) return error;
      if (this.#end.signal.aborted) throw this.#end.signal.reason;
      if (late.signal.aborted) {
        return new AnswerError(`no complete answer within ${this.options.timeout} s`, "timeout");
      }
      return connectionError(error);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** An answer is final. */
const traitsOf = (result: Answer | AnswerError): AnswerError["options"] =>
  result instanceof AnswerError ? { isFinal: false, ...result.options } : { usage: result.usage };

function modelOf(body: unknown): string | null {
  const { model } = body as { model?: unknown };
  return typeof model === "string" ? model : null;
}

/** Deeper answers are refused. */
const MOST_LEVELS = 100;

/** A JSON value with all its strings redacted, including keys. */
export function withoutSecrets(value: unknown, redact: (text: string) => string, level = 0): unknown {
  if (typeof value === "string") return redact(value);
  if (typeof value !== "object" || value === null) return value;
  if (level === MOST_LEVELS) throw new AnswerError(`JSON of more than ${MOST_LEVELS} levels`, "answer");
  if (Array.isArray(value)) return value.map((each) => withoutSecrets(each, redact, level + 1));
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [redact(key), withoutSecrets(each, redact, level + 1)]),
  );
}

/** undefined for a text that is not JSON. */
function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The text of a response. @throws AnswerError for one that is too long */
export async function readBody(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += (chunk as Uint8Array).length;
    if (bytes > MOST_BYTES) throw new AnswerError(`more than ${MOST_BYTES} bytes`, "answer");
    chunks.push(chunk as Uint8Array);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Errors after which the server cannot have computed anything. */
const NEVER_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

/** `fetch` hides the reason behind "fetch failed" and "terminated". */
export function connectionError(error: unknown): AnswerError {
  const codes: string[] = [];
  let message = error instanceof Error ? error.message : String(error);
  for (let at = error; at instanceof Error; at = at.cause) {
    const { code } = at as NodeJS.ErrnoException;
    if (code !== undefined) codes.push(code);
    if (at.message !== "") message = at.message;
  }
  const isFree = codes.some((code) => NEVER_SENT.includes(code));
  return new AnswerError(`no connection: ${[...codes.slice(0, 1), message].join(": ")}`, "connection", {
    isFree,
  });
}
