import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { UsageError } from "@astra-rl/torch";
import { answer, planChat, planCompletion, type Receiver, type ServedModel } from "./answers.js";
import { ApiError } from "./api-error.js";
import { Engine } from "./engine.js";
import { isLoopback, listen } from "./loopback.js";
import { Metrics } from "./metrics.js";

const MOST_BYTES = 8 * 2 ** 20;

export interface ServeOptions {
  /** The address to listen on. Default "127.0.0.1". Another than loopback needs a token. */
  host?: string;
  /** 0: any free one. Default 8000. */
  port?: number;
  /** What clients send as `Authorization: Bearer …`. Default: nothing is asked for on loopback. */
  token?: string;
  /** Sequences that may wait before requests are refused with 429. Default 256. */
  queue?: number;
}

export interface RunningServer {
  /** Such as "http://127.0.0.1:8000". */
  url: string;
  /** Stops taking requests, and waits for those in progress. */
  stop: () => Promise<void>;
  /** Requests in progress. */
  readonly open: number;
}

/**
 * Serves models over OpenAI's API: chat completions, completions and models, and `/health` and `/metrics`.
 *
 * @param models the first is told first; names must differ. The caller disposes of them after `stop`
 * @throws UsageError for a public address without a token, and one that cannot be listened on
 */
export async function serve(
  models: readonly ServedModel[],
  options: ServeOptions = {},
): Promise<RunningServer> {
  const { host = "127.0.0.1", port = 8000, token, queue = 256 } = options;
  const isLocal = isLoopback(host);
  if (!isLocal && token === undefined) {
    throw new UsageError(
      `--host ${host}: anyone who reaches this address could use the model; set a token (--token-env NAME), or listen on 127.0.0.1`,
    );
  }
  const engine = new Engine([...new Set(models.map(({ batch }) => batch))], queue);
  const handler = new Handler(models, engine, { isLocal, token });
  const server = createServer({ requestTimeout: 60_000 }, (request, response) => {
    void handler.handle(request, response);
  });
  handler.server = server;
  server.on("clientError", (_, socket) => {
    endBadRequest(socket as Socket);
  });
  return {
    url: await listen(server, host, port),
    get open() {
      return handler.open;
    },
    async stop() {
      handler.isStopping = true;
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeIdleConnections();
      await closed;
    },
  };
}

/** What is no HTTP gets the API's error shape, too. */
function endBadRequest(socket: Socket): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const body = JSON.stringify(new ApiError(400, "the request is no valid HTTP").body);
  const head = [
    "HTTP/1.1 400 Bad Request",
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  socket.end(`${[...head, "Connection: close"].join("\r\n")}\r\n\r\n${body}`);
}

interface Access {
  isLocal: boolean;
  token: string | undefined;
}

class Handler {
  isStopping = false;
  open = 0;
  server: Server | null = null;
  readonly #metrics = new Metrics();
  readonly #started = Math.floor(Date.now() / 1000);

  constructor(
    readonly models: readonly ServedModel[],
    readonly engine: Engine,
    readonly access: Access,
  ) {}

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const start = performance.now();
    const gone = new AbortController();
    let endpoint = "other";
    this.open += 1;
    response.on("close", () => {
      this.open -= 1;
      gone.abort();
      // A connection that is kept alive would keep the server.
      if (this.isStopping) setImmediate(() => this.server?.closeIdleConnections());
      this.#metrics.count(endpoint, response.writableFinished ? response.statusCode : 499);
    });
    response.on("error", () => gone.abort());
    const receiver = receiverOf(response, () =>
      this.#metrics.firstToken.observe((performance.now() - start) / 1000),
    );
    try {
      if (this.isStopping)
        throw new ApiError(503, "the server is stopping", null, null, { connection: "close" });
      const path = pathOf(request);
      const route =
        ROUTES.get(path) ?? (path.startsWith("/v1/models/") ? ROUTES.get("/v1/models/") : undefined);
      if (route === undefined)
        throw new ApiError(404, `there is no ${shown(path)} on this server`, "not_found");
      endpoint = route.name;
      if (request.method !== route.method) {
        throw new ApiError(405, `${route.name} takes ${route.method}`, null, null, { allow: route.method });
      }
      this.#admit(request, route.name);
      await route.run({ handler: this, request, response, receiver, path, signal: gone.signal });
      if (route.method === "POST") this.#metrics.duration.observe((performance.now() - start) / 1000);
    } catch (error) {
      endWith(response, error);
    }
  }

  /** @throws ApiError 401 without the token, 403 for a name that is not this machine's */
  #admit({ headers }: IncomingMessage, endpoint: string): void {
    const { isLocal, token } = this.access;
    // A page in a browser may reach loopback under a name of its own (DNS rebinding).
    if (isLocal && !isLoopback(headers.host)) {
      throw new ApiError(403, "this server answers as 127.0.0.1 or localhost only", "forbidden_host");
    }
    if (token === undefined || endpoint === "/health") return;
    if (!isEqual(headers.authorization ?? "", `Bearer ${token}`)) {
      throw new ApiError(401, "the token is missing or wrong (Authorization: Bearer …)", "invalid_api_key");
    }
  }

  find(name: unknown): ServedModel {
    const found = this.models.find((model) => model.name === name);
    if (found !== undefined) return found;
    const names = this.models.map((model) => model.name).join(", ");
    throw new ApiError(
      404,
      `model: this server has ${names}, not ${shown(String(name))}`,
      "model_not_found",
      "model",
    );
  }

  list(): object[] {
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
    const { running, waiting } = this.engine;
    return { status: "ok", running, waiting };
  }

  metrics(): string {
    return this.#metrics.text(this.engine);
  }
}

interface Call {
  handler: Handler;
  request: IncomingMessage;
  response: ServerResponse;
  receiver: Receiver;
  path: string;
  signal: AbortSignal;
}

interface Route {
  name: string;
  method: "GET" | "POST";
  run: (call: Call) => Promise<void> | void;
}

const generation = (name: string, plan: typeof planChat): Route => ({
  name,
  method: "POST",
  async run({ handler, request, receiver, signal }) {
    const body = await bodyOf(request);
    const model = handler.find((body as { model?: unknown } | null)?.model);
    await answer(plan(model, body), handler.engine, receiver, signal);
  },
});

const listed: Route[] = [
  generation("/v1/chat/completions", planChat),
  generation("/v1/completions", planCompletion),
  {
    name: "/v1/models",
    method: "GET",
    run: ({ handler, receiver }) => receiver.send({ object: "list", data: handler.list() }),
  },
  {
    name: "/v1/models/",
    method: "GET",
    run: ({ handler, receiver, path }) => {
      const { name } = handler.find(decodeURIComponent(path.slice("/v1/models/".length)));
      receiver.send(handler.list().find((each) => (each as { id: string }).id === name)!);
    },
  },
  { name: "/health", method: "GET", run: ({ handler, receiver }) => receiver.send(handler.health()) },
  {
    name: "/metrics",
    method: "GET",
    run: ({ handler, response }) => {
      response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" });
      response.end(handler.metrics());
    },
  },
];

const ROUTES = new Map(listed.map((route) => [route.name, route]));

function receiverOf(response: ServerResponse, onFirstToken: () => void): Receiver {
  let isFirst = true;
  return {
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

/** Tells the client what went wrong: as the answer, or as the last event of a stream. */
function endWith(response: ServerResponse, error: unknown): void {
  const known =
    error instanceof ApiError
      ? error
      : new ApiError(500, `the server failed: ${error instanceof Error ? error.message : String(error)}`);
  if (response.destroyed || response.writableEnded) return;
  if (response.headersSent) {
    response.end(`data: ${JSON.stringify(known.body)}\n\n`);
    return;
  }
  sendJson(response, known.status, known.body, known.headers);
}

/** @throws ApiError for what is too large, and what is no JSON */
async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    length += part.length;
    if (length > MOST_BYTES) {
      throw new ApiError(413, `a request may have ${MOST_BYTES / 2 ** 20} MiB`, null, null, {
        connection: "close",
      });
    }
    parts.push(part);
  }
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(parts))) as unknown;
  } catch {
    throw new ApiError(400, "the body is no JSON in UTF-8", "invalid_json");
  }
}

/** The path, without a trailing slash. */
function pathOf({ url = "/" }: IncomingMessage): string {
  const [path] = url.split("?", 1) as [string];
  return path.length > 1 ? path.replace(/\/+$/u, "") : path;
}

const shown = (text: string) => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);

/** In a time that does not depend on where they differ. */
function isEqual(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
