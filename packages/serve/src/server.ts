import { createServer, type Server } from "node:http";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { UsageError, isLoopback, listen } from "@astra-rl/base";
import type { ServedModel } from "./answers.js";
import { ApiError } from "./api-error.js";
import { Engine } from "./engine.js";
import { Handler } from "./handler.js";
import { Reader } from "./reader.js";

/** Milliseconds: timeouts of the head of a request and of all of it, and the interval of checks. */
const LIMITS = { headersTimeout: 10_000, requestTimeout: 60_000, connectionsCheckingInterval: 1000 };
const MOST_CONNECTIONS = 1024;
/** Milliseconds in which clients must read the last answers when the server stops. */
const LAST_PATIENCE = 5000;

export interface ServeOptions {
  /** The address to listen on. Default "127.0.0.1". Any other than loopback requires a token. */
  host?: string;
  /** 0 chooses a free port. Default 8000. */
  port?: number;
  /** What clients send as `Authorization: Bearer …`. Default: no token on loopback. */
  token?: string;
  /** Maximum number of waiting sequences; further requests are refused with 429. Default 256. */
  queue?: number;
  /** Called with internal errors; clients only learn that there was one. */
  log?: (text: string) => void;
}

export interface RunningServer {
  /** Such as "http://127.0.0.1:8000". */
  url: string;
  /** Stops accepting requests, and waits for those that were received completely. */
  stop: () => Promise<void>;
  /** Requests in progress. */
  readonly open: number;
}

/**
 * Serves models over OpenAI's API: chat completions, completions and models, and `/health` and `/metrics`.
 *
 * @param models in the order of the list of models; names must differ. The caller disposes of them after `stop`
 * @throws UsageError for a public address without a token, and for an unavailable address
 */
export async function serve(
  models: readonly ServedModel[],
  options: ServeOptions = {},
): Promise<RunningServer> {
  const { host = "127.0.0.1", port = 8000, token, queue = 256, log = () => undefined } = options;
  const isLocal = isLoopback(host);
  if (!isLocal && token === undefined) {
    throw new UsageError(
      "token-required",
      `--host ${host}: anyone who reaches this address could use the model; set a token (--token-env NAME), or listen on 127.0.0.1`,
    );
  }
  if (token !== undefined) requireToken(token, "token");
  const engine = new Engine([...new Set(models.map(({ batch }) => batch))], queue);
  const reader = new Reader(
    models.map(({ batch, tokenizer, ...model }) => ({
      ...model,
      window: batch.window,
      tokenizerFiles: tokenizer.definingFiles,
    })),
  );
  const handler = new Handler(models, { engine, reader, log, isLocal, token });
  const server = createServer(LIMITS, (request, response) => void handler.handle(request, response));
  server.maxConnections = MOST_CONNECTIONS;
  server.on("connection", (socket) => handler.connections.add(socket));
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    endBadRequest(socket as Socket, error.code === "ERR_HTTP_REQUEST_TIMEOUT");
  });
  let url: string;
  try {
    await reader.start();
    url = await listen(server, host, port);
  } catch (error) {
    await reader.stop();
    throw error;
  }
  return {
    url,
    get open() {
      return handler.open;
    },
    stop: () => stopped(server, handler, reader),
  };
}

/**
 * Checks that a client can send a token: HTTP drops white space around it.
 *
 * @throws UsageError for another one
 */
export function requireToken(token: string, where: string): void {
  if (/^[\x21-\x7e]+$/u.test(token)) return;
  throw new UsageError(
    "unsendable-token",
    `${where}: a token must have visible ASCII characters only, no white space, since no client could send ` +
      `it; choose another one`,
  );
}

async function stopped(server: Server, handler: Handler, reader: Reader): Promise<void> {
  handler.isStopping = true;
  const closed = new Promise<true>((resolve) => server.close(() => resolve(true)));
  // Idle connections, and those with an incomplete request, whose rest may never arrive.
  handler.connections.closeUnused();
  // Parsing and generation have their own limits.
  while (handler.answering > 0 && !(await Promise.race([closed, sleep(50, false)])));
  const late = new AbortController();
  await Promise.race([closed, sleep(LAST_PATIENCE, true, { signal: late.signal }).catch(() => true)]);
  late.abort();
  server.closeAllConnections();
  await closed;
  await reader.stop();
}

/** Invalid HTTP and slow requests also get the API's error format. */
function endBadRequest(socket: Socket, isLate: boolean): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const [status, message] = isLate
    ? ["408 Request Timeout", "the request took too long to arrive"]
    : ["400 Bad Request", "the request is not valid HTTP"];
  const body = JSON.stringify(new ApiError(isLate ? 408 : 400, message).body);
  const head = [
    `HTTP/1.1 ${status}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  socket.write(`${[...head, "Connection: close"].join("\r\n")}\r\n\r\n${body}`);
  socket.destroySoon();
}
