import {
  AnswerError,
  connectionError,
  readBody,
  readHeaders,
  readStatus,
  redactor,
  retryAfter,
  withoutSecrets,
} from "@astra-rl/http";
import { describeValue, parseOptions, UsageError, valueAt, type Json } from "@astra-rl/base";
import { randomUUID } from "node:crypto";
import { z } from "zod";
import {
  LostSessionError,
  type Agent,
  type AgentReply,
  type Session,
  type SessionStart,
  type SessionTurn,
} from "./agent.js";

const request = z.strictObject({
  method: z.enum(["POST", "PUT", "DELETE", "GET"]).default("POST").describe("HTTP method"),
  path: z.string().startsWith("/").describe("After the base URL; {session} stands for the session's id"),
  body: z
    .record(z.string(), z.unknown())
    .optional()
    .describe("JSON body; texts may contain {text}, {session}, {seed}, {system} and {injection}"),
});

const place = z
  .string()
  .min(1)
  .describe("Where in the answer's JSON it is: keys and indices joined by dots, such as data.message");

const shape = {
  baseURL: z
    .string()
    .refine((text) => URL.canParse(text) && /^https?:/u.test(text), {
      message: "must be a URL of the form https://host",
      params: { rule: "invalid-base-url" },
    })
    .describe("URL of the agent"),
  headers: z
    .record(z.string(), z.string().min(1))
    .default({})
    .meta({ resume: "free" })
    .describe("Headers of every request, each from the environment variable that it names"),
  new: request
    .extend({
      session: place.optional().describe(`The session's id. ${place.description}. Default: one of ours`),
    })
    .optional()
    .describe("Request that begins a session. Default: none; the first message begins it"),
  send: request
    .extend({
      text: place.describe(`The answer's text. ${place.description}`),
      calls: place.optional().describe(`A list of tool calls. ${place.description}. Default: none`),
    })
    .refine((send) => tells(send, "text") || tells(send, "injection"), {
      message: "must contain {text} in its path or body, or the agent is told nothing of the tester",
      params: { rule: "missing-text" },
    })
    .describe("Request with a message of the user"),
  call: z
    .strictObject({
      name: place.default("name"),
      arguments: place.default("arguments"),
      result: place.default("result"),
      error: place.default("error"),
    })
    .prefault({})
    .describe("Where in a tool call its parts are"),
  fork: request
    .extend({ session: place.describe(`The copy's id. ${place.description}`) })
    .optional()
    .describe("Request that copies a session. Default: conversations are replayed"),
  close: request.optional().describe("Request that ends a session. Default: none"),
  lost: z
    .array(z.int())
    .default([404, 410])
    .describe("Statuses that say that the agent no longer knows the session"),
};

/** Whether a request contains a value. */
function tells({ method, path, body }: z.output<typeof request>, name: string): boolean {
  const sent = method === "GET" || method === "DELETE" ? path : path + JSON.stringify(body ?? {});
  return sent.includes(`{${name}}`);
}

/** Options of an agent behind HTTP. */
export const httpAgentOptions = z.strictObject(shape);

export type HTTPAgentOptions = z.input<typeof httpAgentOptions>;

type Values = Readonly<Record<string, string>>;

/** An agent behind JSON over HTTP, with the id of its session in each request. */
export class HTTPAgent implements Agent {
  /** See `Agent`. */
  readonly tellsCalls: boolean;
  readonly options: z.output<typeof httpAgentOptions>;
  readonly end?: (id: string, signal: AbortSignal) => Promise<void>;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #redact: (text: string) => string;

  /** @throws UsageError for invalid options, and for an environment variable that is not set */
  constructor(
    given: HTTPAgentOptions,
    readonly where = "HTTPAgent",
    environment: Readonly<Record<string, string | undefined>> = process.env,
  ) {
    const options = parseOptions(where, httpAgentOptions, given);
    this.options = options;
    this.tellsCalls = options.send.calls !== undefined;
    const { headers, secrets } = readHeaders(where, options.headers, environment);
    this.#headers = headers;
    this.#redact = redactor(secrets);
    const { close } = options;
    if (close === undefined) return;
    this.end = async (session, signal) => {
      try {
        await this.ask(close, { session }, signal);
      } catch (error) {
        // What the agent no longer knows has ended.
        if (!(error instanceof LostSessionError)) throw error;
      }
    };
  }

  async start({ seed, system, signal }: SessionStart): Promise<Session> {
    const own = randomUUID();
    const { new: begin } = this.options;
    if (begin === undefined) return new HTTPSession(this, own, system);
    const answer = await this.ask(begin, { session: own, seed: String(seed), system: system ?? "" }, signal);
    return new HTTPSession(this, begin.session === undefined ? own : this.#id(answer, begin.session), system);
  }

  async fork(session: string, signal: AbortSignal): Promise<string> {
    const { fork } = this.options;
    return this.#id(await this.ask(fork!, { session }, signal), fork!.session);
  }

  /**
   * One request; the answer as JSON.
   *
   * @param read gets the JSON of any answer, an error's included
   * @throws LostSessionError, AnswerError, UsageError for an account that is refused
   */
  async ask(
    given: z.output<typeof request>,
    values: Values,
    signal: AbortSignal,
    read: (answer: unknown) => void = () => {},
  ): Promise<unknown> {
    const { method, path, body } = given;
    const encoded = Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name, encodeURIComponent(value)]),
    );
    const url = this.options.baseURL.replace(/\/+$/u, "") + filled(path, encoded);
    let response: Response;
    let text: string;
    try {
      response = await fetch(url, {
        method,
        headers: { "content-type": "application/json", accept: "application/json", ...this.#headers },
        redirect: "manual",
        signal,
        ...(method === "GET" || method === "DELETE" || body === undefined
          ? {}
          : { body: JSON.stringify(filledIn(body, values)) }),
      });
      text = await readBody(response);
    } catch (error) {
      if (error instanceof AnswerError) throw error;
      const { message, outcome, options } = connectionError(error);
      throw new AnswerError(`${method} ${path}: ${this.#redact(message)}`, outcome, options);
    }
    // Secrets are removed before anything is read, shortened or stored.
    const parsed = withoutSecrets(jsonOf(text), this.#redact);
    read(parsed);
    if (this.options.lost.includes(response.status)) {
      throw new LostSessionError(
        `${method} ${path}: the agent no longer knows the session (${response.status})`,
      );
    }
    if (response.status < 200 || response.status > 299) {
      throw readStatus(
        response.status,
        parsed ?? this.#redact(text),
        retryAfter(response.headers, Date.now()),
      );
    }
    if (parsed === undefined && text.trim() !== "") {
      throw new AnswerError(
        `${method} ${path}: no JSON: ${this.#redact(text).trim().slice(0, 80)}`,
        "answer",
      );
    }
    return parsed;
  }

  #id(answer: unknown, where: string): string {
    const id = valueAt(where.split("."), answer);
    if (typeof id === "string" && id !== "") return id;
    if (typeof id === "number") return String(id);
    throw new AnswerError(`no session at ${where} of the answer, got ${describeValue(id)}`, "answer");
  }
}

class HTTPSession implements Session {
  // Absent where the agent has no such request.
  readonly fork?: (signal: AbortSignal) => Promise<Session>;
  readonly close?: (signal: AbortSignal) => Promise<void>;
  #isBegun = false;

  constructor(
    private readonly agent: HTTPAgent,
    readonly id: string,
    private readonly system: string | null,
  ) {
    const { end } = agent;
    if (end !== undefined) this.close = (signal) => end(id, signal);
    if (agent.options.fork !== undefined) {
      this.fork = async (signal) => {
        const copy = await agent.fork(id, signal);
        const session = new HTTPSession(agent, copy, system);
        session.#isBegun = this.#isBegun;
        return session;
      };
    }
  }

  async send(text: string, { seed, signal, injected, called }: SessionTurn): Promise<AgentReply> {
    const { send, call } = this.agent.options;
    const { id: session, system } = this;
    const injection = Object.values(injected).join("\n");
    const needed = Object.keys(injected).length > 0 ? "injection" : "text";
    if (!tells(send, needed)) {
      throw new UsageError(
        "missing-text",
        `${this.agent.where}.send: must contain {${needed}} in its path or body, or the agent is told nothing of the tester`,
      );
    }
    const values = { text, session, seed: String(seed), system: system ?? "", injection };
    let answer: unknown;
    try {
      answer = await this.agent.ask(send, values, signal, (half) => {
        for (const each of this.#listed(half) ?? []) tell(each, call, called);
      });
    } catch (error) {
      // A first message that meets no session meets no agent.
      if (error instanceof LostSessionError && !this.#isBegun && this.agent.options.new === undefined) {
        throw new AnswerError(error.message, "status", { isFinal: true });
      }
      throw error;
    }
    this.#isBegun = true;
    const said = valueAt(send.text.split("."), answer);
    if (typeof said !== "string") {
      throw new AnswerError(`no text at ${send.text} of the answer, got ${describeValue(said)}`, "answer");
    }
    const listed = this.#listed(answer);
    if (listed === null) {
      throw new AnswerError(`no list of calls at ${send.calls!} of the answer`, "answer");
    }
    return { text: said, calls: listed.map((each) => callOf(each, call)) };
  }

  /** null if there is no list where it should be. */
  #listed(answer: unknown): readonly unknown[] | null {
    const { calls } = this.agent.options.send;
    const listed = calls === undefined ? [] : (valueAt(calls.split("."), answer) ?? []);
    return Array.isArray(listed) ? listed : null;
  }
}

/** Tells of a call of an answer that may be half of one. */
function tell(given: unknown, places: HTTPAgent["options"]["call"], called: SessionTurn["called"]): void {
  try {
    called(callOf(given, places));
  } catch {
    // Not a call.
  }
}

/** @throws AnswerError for a call without a name or arguments, which could hide what was done */
function callOf(given: unknown, places: HTTPAgent["options"]["call"]) {
  const at = (where: string) => valueAt(where.split("."), given);
  const name = at(places.name);
  if (typeof name !== "string") {
    throw new AnswerError(`a call without a name at ${places.name}: ${describeValue(given)}`, "answer");
  }
  const [written, result, error] = [at(places.arguments), at(places.result), at(places.error)];
  if (written === undefined) {
    const hint = "no arguments are {} or null";
    throw new AnswerError(
      `a call without arguments at ${places.arguments}: ${describeValue(given)}; ${hint}`,
      "answer",
    );
  }
  // Some agents give the arguments as JSON in a text.
  const parsed = typeof written === "string" ? (jsonOf(written) ?? written) : written;
  return {
    name,
    arguments: (parsed ?? {}) as Json,
    ...(result === undefined ? {} : { result: result as Json }),
    ...(error === undefined || error === null
      ? {}
      : { error: typeof error === "string" ? error : JSON.stringify(error) }),
  };
}

const filled = (text: string, values: Values): string =>
  text.replaceAll(/\{(\w+)\}/gu, (whole, name: string) =>
    Object.hasOwn(values, name) ? values[name]! : whole,
  );

/** A body with its texts filled in. */
function filledIn(value: unknown, values: Values): unknown {
  if (typeof value === "string") return filled(value, values);
  if (Array.isArray(value)) return value.map((each) => filledIn(each, values));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, filledIn(each, values)]));
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
