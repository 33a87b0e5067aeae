import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { ApiError } from "./api-error.js";
import type { ReaderAnswer } from "./reader-worker.js";
import type { Endpoint, ReadModel, ReadRequest } from "./reading.js";

// The same relative path from src and dist.
const WORKER = fileURLToPath(new URL("../dist/reader-worker.js", import.meta.url));

/** Requests of at most this many bytes do not wait for larger ones. */
const SHORT = 1 << 16;
/** Timeout of one request in milliseconds: a thousand times that of a long ordinary one. */
const PATIENCE = 20_000;

interface Waiting {
  endpoint: Endpoint;
  bytes: Uint8Array;
  signal: AbortSignal;
  resolve: (request: ReadRequest) => void;
  reject: (error: Error) => void;
}

/** Parses requests in separate threads: one for short ones, and one for the others, which is started on demand. */
export class Reader {
  readonly #short: ReaderThread;
  readonly #long: ReaderThread;
  #limits: Readonly<Record<Endpoint, number>> | null = null;

  constructor(models: readonly ReadModel[], { patience = PATIENCE }: { patience?: number } = {}) {
    this.#short = new ReaderThread(models, patience);
    this.#long = new ReaderThread(models, patience);
  }

  /**
   * Starts the thread of short requests, so that the first one does not wait for it.
   *
   * @throws the thread's error
   */
  async start(): Promise<void> {
    this.#limits = await this.#short.started();
  }

  /** Bytes of the longest request that may fit a window; 0 before `start`. */
  limit(endpoint: Endpoint): number {
    return this.#limits?.[endpoint] ?? 0;
  }

  /** @throws ApiError for requests that cannot be answered */
  read(endpoint: Endpoint, bytes: Uint8Array, signal: AbortSignal): Promise<ReadRequest> {
    return (bytes.length <= SHORT ? this.#short : this.#long).read(endpoint, bytes, signal);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#short.stop(), this.#long.stop()]);
  }
}

/**
 * A thread that parses one request after the other; one that takes too long ends the thread, and the next one gets a
 * new thread.
 */
class ReaderThread {
  readonly #queue: Waiting[] = [];
  #worker: Worker | null = null;
  #isReady = false;
  #current: Waiting | null = null;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    readonly models: readonly ReadModel[],
    readonly patience: number,
  ) {}

  read(endpoint: Endpoint, bytes: Uint8Array, signal: AbortSignal): Promise<ReadRequest> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ endpoint, bytes, signal, resolve, reject });
      this.#start();
      this.#next();
    });
  }

  started(): Promise<Readonly<Record<Endpoint, number>>> {
    this.#start();
    return new Promise((resolve, reject) => {
      this.#worker!.once("message", (answer: ReaderAnswer) => {
        if (answer.kind === "ready") resolve(answer.limits);
      });
      this.#worker!.once("error", reject);
    });
  }

  #start(): void {
    if (this.#worker !== null) return;
    const worker = new Worker(WORKER, { execArgv: [], workerData: this.models });
    worker.on("message", (answer: ReaderAnswer) => {
      if (worker === this.#worker) this.#hear(answer);
    });
    worker.on("error", (error) => {
      if (worker !== this.#worker) return;
      // A thread that never became ready cannot parse anything.
      const lost = this.#isReady ? [] : this.#queue.splice(0);
      this.#drop();
      for (const { reject } of lost) reject(error);
      this.#settle(({ reject }) => reject(error));
    });
    this.#worker = worker;
  }

  async stop(): Promise<void> {
    const worker = this.#worker;
    this.#drop();
    await worker?.terminate();
  }

  #drop(): void {
    this.#worker = null;
    this.#isReady = false;
  }

  #hear(answer: ReaderAnswer): void {
    switch (answer.kind) {
      case "ready":
        this.#isReady = true;
        this.#worker!.unref();
        return this.#next();
      case "read":
        return this.#settle(({ resolve }) => resolve(answer.request));
      case "refused": {
        const { status, message, code, param } = answer;
        return this.#settle(({ reject }) => reject(new ApiError(status, message, code, param)));
      }
      case "failed":
        return this.#settle(({ reject }) => reject(new Error(answer.message)));
    }
  }

  #settle(tell: (waiting: Waiting) => void): void {
    clearTimeout(this.#timer);
    const current = this.#current;
    this.#current = null;
    if (current !== null) tell(current);
    if (this.#queue.length > 0) this.#start();
    this.#next();
  }

  #next(): void {
    if (!this.#isReady || this.#current !== null) return;
    const next = this.#queue.shift();
    if (next === undefined) return;
    if (next.signal.aborted) {
      next.reject(new ApiError(499, "the client has disconnected"));
      return this.#next();
    }
    this.#current = next;
    const { endpoint, bytes } = next;
    this.#worker!.postMessage({ endpoint, bytes }, [bytes.buffer as ArrayBuffer]);
    this.#timer = setTimeout(() => {
      void this.#worker?.terminate();
      this.#drop();
      const message = `the request takes longer than ${this.patience / 1000} s to read; shorten it`;
      this.#settle(({ reject }) => reject(new ApiError(400, message, "context_length_exceeded")));
    }, this.patience);
    this.#timer.unref();
  }
}
