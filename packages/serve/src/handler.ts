import { timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { refusalOf } from "@astra-rl/base";
import { answer, type Receiver, type ServedModel } from "./answers.js";
import { ApiError } from "./api-error.js";
import { Bodies } from "./bodies.js";
import { Connections } from "./connections.js";
import type { Engine } from "./engine.js";
import { Metrics } from "./metrics.js";
import type { Reader } from "./reader.js";
import { shown, unknownModel, type Endpoint } from "./reading.js";

/** Milliseconds in which a client must read a complete answer. */
const PATIENCE = 30_000;

export interface Surroundings {
  engine: Engine;
  reader: Reader;
  log: (text: string) => void;
  isLocal: boolean;
  token: string | undefined;
}

/** Answers requests. */
export class Handler {
  isStopping = false;
  /** Requests in progress. */
  open = 0;
  /** Among them, those that were received completely. */
  answering = 0;
  readonly connections = new Connections();
  readonly bodies = new Bodies();
  readonly #metrics = new Metrics();
  readonly #started = Math.floor(Date.now() / 1000);

  constructor(
    readonly models: readonly ServedModel[],
    readonly surroundings: Surroundings,
  ) {}

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const start = performance.now();
    const gone = new AbortController();
    let endpoint = "other";
    this.open += 1;
    response.on("close", () => {
      this.open -= 1;
      gone.abort();
      // A connection that is kept alive would keep the server running.
      if (this.isStopping) setImmediate(() => this.connections.closeUnused());
      this.#metrics.count(endpoint, response.writableFinished ? response.statusCode : 499);
    });
    response.on("error", () => gone.abort());
    const receiver = receiverOf(response, () =>
      this.#metrics.firstToken.observe((performance.now() - start) / 1000),
    );
    try {
      if (this.isStopping)
        throw new ApiError(503, "the server is stopping", null, null, { connection: "close" });
      const { isLocal } = this.surroundings;
      const refusal = refusalOf(request.headers, isLocal);
      if (refusal !== null) throw new ApiError(403, refusal, "forbidden_origin");
      const path = pathOf(request);
      const route =
        ROUTES.get(path) ?? (path.startsWith("/v1/models/") ? ROUTES.get("/v1/models/") : undefined);
      if (route === undefined)
        throw new ApiError(404, `there is no ${shown(path)} on this server`, "not_found");
      endpoint = route.name;
      if (!route.methods.includes(request.method!)) {
        const allow = route.methods.join(", ");
        throw new ApiError(405, `${route.name} takes ${allow}`, null, null, { allow });
      }
      this.#admit(request, route.name);
      await route.run({ handler: this, request, response, receiver, path, signal: gone.signal });
      if (request.method === "POST") this.#metrics.duration.observe((performance.now() - start) / 1000);
    } catch (error) {
      this.#endWith(response, error);
    }
    response.setTimeout(PATIENCE, () => response.destroy());
  }

  /** @throws ApiError 401 without the token */
  #admit({ headers }: IncomingMessage, endpoint: string): void {
    const { token } = this.surroundings;
    if (token === undefined || endpoint === "/health") return;
    const given = /^bearer +(\S+)$/iu.exec(headers.authorization ?? "")?.[1] ?? "";
    if (isEqual(given, token)) return;
    throw new ApiError(
      401,
      "the token is missing or wrong (Authorization: Bearer …)",
      "invalid_api_key",
      null,
      {
        "www-authenticate": "Bearer",
      },
    );
  }

  /** Receives, reads and answers a request for text. */
  async generate(endpoint: Endpoint, { request, receiver, signal }: Call): Promise<void> {
    const { engine, reader } = this.surroundings;
    const bytes = await this.bodies.receive(request, reader.limit(endpoint));
    const end = this.connections.begin(request.socket);
    this.answering += 1;
    try {
      const read = await reader.read(endpoint, bytes, signal);
      await answer(read, this.find(read.model), engine, receiver, signal);
    } finally {
      this.answering -= 1;
      // The connection is in use until the client has read everything.
      if (receiver.isDone()) end();
      else receiver.onDone(end);
    }
  }

  find(name: string): ServedModel {
    const found = this.models.find((model) => model.name === name);
    if (found !== undefined) return found;
    throw unknownModel(name, this.models.map((model) => model.name).join(", "));
  }

  list(): { id: string }[] {
    return this.models.map(({ name, batch, role }) => ({
      id: name,
      object: "model",
      created: this.#started,
      owned_by: "astra-rl",
      max_model_len: batch.window,
      role,
    }));
  }

  health(): object {
    const { running, waiting } = this.surroundings.engine;
    return { status: "ok", running, waiting };
  }

  metrics(): string {
    return this.#metrics.text(this.surroundings.engine);
  }

  /** Reports an error to the client: as the answer, or as the last event of a stream. */
  #endWith(response: ServerResponse, error: unknown): void {
    if (response.destroyed || response.writableEnded) return;
    let known = error;
    if (!(known instanceof ApiError)) {
      // The message may name files of this machine.
      this.surroundings.log(error instanceof Error ? (error.stack ?? error.message) : String(error));
      known = new ApiError(500, "internal error; see the server's own output");
    }
    const { status, body, headers } = known as ApiError;
    if (response.headersSent) response.end(`data: ${JSON.stringify(body)}\n\n`);
    else sendJson(response, status, body, headers);
  }
}

interface Call {
  handler: Handler;
  request: IncomingMessage;
  response: ServerResponse;
  receiver: ResponseReceiver;
  path: string;
  signal: AbortSignal;
}

interface Route {
  name: string;
  methods: readonly string[];
  run: (call: Call) => Promise<void> | void;
}

const generation = (name: Endpoint): Route => ({
  name,
  methods: ["POST"],
  run: (call) => call.handler.generate(name, call),
});

const reading = (name: string, run: Route["run"]): Route => ({ name, methods: ["GET", "HEAD"], run });

const listed: Route[] = [
  generation("/v1/chat/completions"),
  generation("/v1/completions"),
  reading("/v1/models", ({ handler, receiver }) => receiver.send({ object: "list", data: handler.list() })),
  reading("/v1/models/", ({ handler, receiver, path }) => {
    const { name } = handler.find(decoded(path.slice("/v1/models/".length)));
    receiver.send(handler.list().find(({ id }) => id === name)!);
  }),
  reading("/health", ({ handler, receiver }) => receiver.send(handler.health())),
  reading("/metrics", ({ handler, response }) => {
    response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" });
    response.end(handler.metrics());
  }),
];

const ROUTES = new Map(listed.map((route) => [route.name, route]));

/** A decoded part of a path; unchanged if its encoding is invalid. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

interface ResponseReceiver extends Receiver {
  /** Whether the client has received the whole answer, or has disconnected. */
  isDone: () => boolean;
  onDone: (tell: () => void) => void;
}

function receiverOf(response: ServerResponse, onFirstToken: () => void): ResponseReceiver {
  let isFirst = true;
  return {
    isDone: () => response.closed,
    onDone: (tell) => void response.once("close", tell),
    send: (body) => sendJson(response, 200, body),
    event: (body) => {
      if (!response.headersSent) {
        response.writeHead(200, {
          "content-type": "text/event-stream; charset=utf-8",
          "cache-control": "no-cache",
        });
      }
      response.write(`data: ${typeof body === "string" ? body : JSON.stringify(body)}\n\n`);
      if (body === "[DONE]") response.end();
    },
    onFirstToken: () => {
      if (isFirst) onFirstToken();
      isFirst = false;
    },
  };
}

function sendJson(response: ServerResponse, status: number, body: object, headers = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

/** The path, without a trailing slash. */
function pathOf({ url = "/" }: IncomingMessage): string {
  const [path] = url.split("?", 1) as [string];
  let end = path.length;
  while (end > 1 && path[end - 1] === "/") end -= 1;
  return path.slice(0, end);
}

/** Compares in constant time. */
function isEqual(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
