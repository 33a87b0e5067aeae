import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join, resolve } from "node:path";
import { statSync } from "node:fs";
import { AstraError, UsageError, listen, refusalOf } from "@astra-rl/base";
import type { GraphHits, ReportRecord } from "@astra-rl/records";
import { readReport, viewPage, visibleJson } from "../report/index.js";
import { Follower } from "./follow.js";
import { GraphReader } from "./graph-reader.js";
import { linkIn, RunList, stampOfReport } from "./run-list.js";

/** Polling interval of files while a page is open. Milliseconds. */
const LOOK_EVERY = 500;
/** Maximum number of search hits. */
const MOST_HITS = 100;
const LONGEST_QUERY = 1000;

export interface ViewOptions {
  /** 0 chooses a free port. Default 8321. */
  port?: number;
}

export interface RunningView {
  /** Such as "http://127.0.0.1:8321". */
  url: string;
  stop: () => Promise<void>;
}

/**
 * Serves a page that shows the run folders and evaluations below a folder, and follows them while they are written. Reads only, on
 * this machine's loopback address.
 *
 * @throws UsageError for a missing folder, and a port in use
 */
export async function view(folder: string, { port = 8321 }: ViewOptions = {}): Promise<RunningView> {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw new UsageError(
      "folder-not-found",
      `${folder}: there is no such folder; give one that contains run folders`,
    );
  }
  const viewer = new Viewer(resolve(folder));
  const server = createServer((request, response) => {
    void viewer.handle(request, response);
  });
  const url = await listen(server, "127.0.0.1", port);
  return {
    url,
    async stop() {
      viewer.stop();
      const closed = new Promise((done) => server.close(done));
      server.closeAllConnections();
      await closed;
      await viewer.graphs.stop();
    },
  };
}

/** Without graphs: those are read one at a time. @param ids of the runs, which name them in the page */
function reportOf(paths: readonly string[], ids: readonly string[]): ReportRecord {
  const report = readReport(paths, { graphs: 0 });
  for (const [index, run] of report.runs.entries()) run.label = ids[index]!;
  return report;
}

class Refusal extends AstraError {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

class Viewer {
  readonly graphs = new GraphReader();
  readonly #runs: RunList;
  readonly #streams = new Set<() => void>();
  #told: { stamp: string; json: string } | null = null;

  constructor(readonly folder: string) {
    this.#runs = new RunList(folder);
  }

  stop(): void {
    for (const end of this.#streams) end();
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on("error", () => response.destroy());
    try {
      admit(request);
      const { pathname, searchParams: query } = urlOf(request);
      if (pathname === "/") {
        const { html, policy } = viewPage();
        send(response, 200, html, {
          "content-type": "text/html; charset=utf-8",
          "content-security-policy": policy,
        });
      } else if (pathname === "/api/events") this.#follow(query, response);
      else if (pathname === "/api/report") {
        send(response, 200, this.#reportJson(query.getAll("run"), query.getAll("file")), JSON_TYPE);
      } else sendJson(response, 200, await this.#answer(pathname, query));
    } catch (error) {
      if (response.headersSent) {
        response.destroy();
        return;
      }
      const status = error instanceof Refusal ? error.status : error instanceof AstraError ? 422 : 500;
      const { name, message } = error as Error;
      // Messages of other errors may quote a file.
      sendJson(response, status, { error: status === 500 ? `internal error (${name})` : message });
    }
  }

  async #answer(path: string, query: URLSearchParams): Promise<unknown> {
    switch (path) {
      case "/api/list":
        return this.#runs.read();
      case "/api/graphs":
        return this.graphs.entries(this.#graphsOf(only(query, "run")), natural(query, "from"));
      case "/api/graph":
        return this.graphs.graph(this.#graphsOf(only(query, "run")), natural(query, "at"));
      case "/api/search":
        return this.#search(query.getAll("run"), only(query, "text").slice(0, LONGEST_QUERY));
      default:
        throw new Refusal(404, `there is no ${path} here`);
    }
  }

  /** The report of the given runs and files as JSON; unchanged parts are not reread. */
  #reportJson(runs: readonly string[], files: readonly string[]): string {
    const { evaluations } = this.#runs.read();
    const unknown = files.find((file) => !evaluations.includes(file));
    if (unknown !== undefined) throw new Refusal(404, `there is no evaluation ${unknown} here`);
    const folders = runs.map((id) => this.#folderOf(id));
    for (const folder of folders) {
      const link = linkIn(folder);
      if (link !== null) throw new Refusal(422, `${link}: is a link, which is not followed; copy the file`);
    }
    const paths = [...folders, ...files.map((file) => join(this.folder, file))];
    const stamp = JSON.stringify([runs, files, paths.map(stampOfReport)]);
    if (this.#told?.stamp !== stamp) this.#told = { stamp, json: jsonOf(reportOf(paths, runs)) };
    return this.#told.json;
  }

  async #search(runs: readonly string[], text: string): Promise<GraphHits> {
    const found: GraphHits = { total: 0, hits: [] };
    for (const id of runs) {
      const { total, hits } = await this.graphs.search(
        this.#graphsOf(id),
        id,
        text,
        MOST_HITS - found.hits.length,
      );
      found.total += total;
      found.hits.push(...hits);
    }
    return found;
  }

  /** Only folders in the list can be read, so that no URL leads elsewhere. */
  #folderOf(id: string): string {
    if (!this.#runs.has(id)) throw new Refusal(404, `there is no run ${id} here`);
    return join(this.folder, id);
  }

  readonly #graphsOf = (id: string) => join(this.#folderOf(id), "graphs.jsonl");

  /** Server-sent events: `list` when a run appears or changes, `change` with changes of the requested runs. */
  #follow(query: URLSearchParams, response: ServerResponse): void {
    const since = query.getAll("since").map(Number);
    const followers = query
      .getAll("run")
      .map((id, at) => ({ id, follower: new Follower(this.#folderOf(id), since[at] ?? 0) }));
    response.writeHead(200, { ...SAFE, "content-type": "text/event-stream", "cache-control": "no-store" });
    const tell = (event: string, value: unknown) =>
      response.write(`event: ${event}\ndata: ${jsonOf(value)}\n\n`);
    let told = "";
    const look = () => {
      try {
        const list = this.#runs.read();
        const text = JSON.stringify(list);
        if (text !== told) tell("list", list);
        told = text;
        for (const { id, follower } of followers) {
          const change = follower.look();
          const isNew = change.metrics.length > 0 || change.isReset || change.evaluations || change.graphs;
          if (isNew) tell("change", { run: id, ...change });
        }
      } catch {
        // A file that is being written; the next poll reads it.
      }
    };
    const timer = setInterval(look, LOOK_EVERY);
    const end = () => {
      clearInterval(timer);
      this.#streams.delete(end);
      response.end();
    };
    this.#streams.add(end);
    response.on("close", end);
    look();
  }
}

/** @throws Refusal for requests of other pages, and for methods other than reading */
function admit({ method, headers }: IncomingMessage): void {
  const refusal = refusalOf(headers, true);
  if (refusal !== null) throw new Refusal(403, refusal);
  if (method !== "GET" && method !== "HEAD") throw new Refusal(405, "this server accepts GET only");
}

function urlOf({ url = "/" }: IncomingMessage): URL {
  try {
    return new URL(url, "http://localhost");
  } catch {
    throw new Refusal(400, "the address is not a URL");
  }
}

const SAFE = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "x-frame-options": "DENY",
};

function send(response: ServerResponse, status: number, body: string, headers: Record<string, string>): void {
  response.writeHead(status, { ...SAFE, "cache-control": "no-store", ...headers });
  response.end(body);
}

const JSON_TYPE = { "content-type": "application/json; charset=utf-8" };

const jsonOf = (value: unknown): string => visibleJson(JSON.stringify(value));

const sendJson = (response: ServerResponse, status: number, value: unknown) =>
  send(response, status, jsonOf(value), JSON_TYPE);

function only(query: URLSearchParams, name: string): string {
  const value = query.get(name);
  if (value === null) throw new Refusal(400, `${name}: is missing`);
  return value;
}

function natural(query: URLSearchParams, name: string): number {
  const text = query.get(name) ?? "0";
  if (!/^\d{1,9}$/u.test(text)) throw new Refusal(400, `${name}: must be a whole number`);
  return Number(text);
}
