import { setImmediate as nextTurn } from "node:timers/promises";
import type { ContinuationRequest, ContinuousBatch } from "@astra-rl/lm";
import { ApiError } from "./api-error.js";

/** Steps the batches of all served models in turn, while they have work. */
export class Engine {
  #isRunning = false;
  #secondsPerText = 1;

  /** @param queue maximum number of texts that wait for a row; further requests are refused with a Retry-After */
  constructor(
    readonly batches: readonly ContinuousBatch[],
    readonly queue: number,
  ) {}

  get running(): number {
    return this.batches.reduce((sum, { running }) => sum + running, 0);
  }

  get waiting(): number {
    return this.batches.reduce((sum, { waiting }) => sum + waiting, 0);
  }

  /** @throws ApiError 429 if too many wait already */
  admit(count: number): void {
    const { waiting } = this;
    if (waiting === 0 || waiting + count <= this.queue) return;
    const seconds = Math.min(60, Math.max(1, Math.ceil(waiting * this.#secondsPerText)));
    throw new ApiError(
      429,
      `${waiting} sequences are waiting; try again later`,
      "rate_limit_exceeded",
      null,
      {
        "retry-after": String(seconds),
      },
    );
  }

  /** Starts a text. @returns a function that cancels it */
  submit(batch: ContinuousBatch, request: ContinuationRequest): () => void {
    const start = performance.now();
    const cancel = batch.submit({
      ...request,
      onFinish: (continuation) => {
        const seconds = (performance.now() - start) / 1000 / Math.max(1, this.running + this.waiting);
        this.#secondsPerText += 0.1 * (seconds - this.#secondsPerText);
        request.onFinish(continuation);
      },
    });
    if (!this.#isRunning) void this.#run();
    return cancel;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    let isBusy = true;
    while (isBusy) {
      // Requests are received, and answers sent, between two steps.
      await nextTurn();
      isBusy = false;
      for (const batch of this.batches) {
        if (batch.running + batch.waiting > 0) isBusy = batch.step() || isBusy;
      }
    }
    this.#isRunning = false;
  }
}
