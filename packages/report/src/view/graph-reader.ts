import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { UsageError } from "@astra-rl/base";
import type { GraphEntry, GraphHits, ReportGraph } from "@astra-rl/records";

// The same relative path from src/view and dist/view.
const WORKER = fileURLToPath(new URL("../../dist/view/graph-worker.js", import.meta.url));

/** A request to the thread; `path` is the graphs.jsonl. */
export type GraphQuestion = { path: string } & (
  | { ask: "entries"; from: number }
  | { ask: "graph"; index: number }
  | { ask: "search"; run: string; query: string; limit: number }
);

export type GraphAnswer = { id: number; value: unknown } | { id: number; error: string; rule: string };

export interface GraphEntries {
  /** Index of the first entry; 0 if the file was replaced, so that entries sent earlier are invalid. */
  from: number;
  total: number;
  entries: GraphEntry[];
}

/** Reads and searches graphs in a separate thread, which starts with the first request. */
export class GraphReader {
  #worker: Worker | null = null;
  #waiting = new Map<number, (answer: GraphAnswer) => void>();
  #next = 0;

  entries(path: string, from = 0): Promise<GraphEntries> {
    return this.#ask({ ask: "entries", path, from }) as Promise<GraphEntries>;
  }

  graph(path: string, index: number): Promise<ReportGraph> {
    return this.#ask({ ask: "graph", path, index }) as Promise<ReportGraph>;
  }

  /** @param run goes into each hit */
  search(path: string, run: string, query: string, limit: number): Promise<GraphHits> {
    return this.#ask({ ask: "search", path, run, query, limit }) as Promise<GraphHits>;
  }

  async stop(): Promise<void> {
    await this.#worker?.terminate();
  }

  #ask(question: GraphQuestion): Promise<unknown> {
    this.#worker ??= this.#start();
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, (answer) => {
        if ("error" in answer) reject(new UsageError(answer.rule, answer.error));
        else resolve(answer.value);
      });
      this.#worker!.postMessage({ id, ...question });
    });
  }

  #start(): Worker {
    // Texts are outside of the heap; parsed values are short-lived, so a small heap suffices.
    const resourceLimits = { maxYoungGenerationSizeMb: 8, maxOldGenerationSizeMb: 256 };
    const worker = new Worker(WORKER, { execArgv: [], resourceLimits });
    worker.unref();
    worker.on("message", (answer: GraphAnswer) => {
      this.#waiting.get(answer.id)?.(answer);
      this.#waiting.delete(answer.id);
    });
    // The next request starts a new worker.
    worker.on("error", (error) => {
      const told = [...this.#waiting];
      this.#worker = null;
      this.#waiting = new Map();
      for (const [id, tell] of told) tell({ id, error: error.message, rule: "graph-unreadable" });
    });
    return worker;
  }
}
