/** Time as the client sees it; tests replace it. */
export interface Clock {
  /** Milliseconds. */
  now(): number;
  /** @throws the signal's reason once it is aborted */
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

export const CLOCK: Clock = {
  now: () => Date.now(),
  sleep: (milliseconds, signal) =>
    new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const stop = () => {
        clearTimeout(timer);
        reject(signal.reason as Error);
      };
      const timer = setTimeout(() => {
        signal.removeEventListener("abort", stop);
        resolve();
      }, milliseconds);
      signal.addEventListener("abort", stop, { once: true });
    }),
};

/**
 * Limits the calls in flight: halves the limit when the server is overloaded, then adds one with each full round of
 * answers, as in TCP's congestion avoidance (additive increase, multiplicative decrease).
 */
export class Limiter {
  #limit: number;
  #inFlight = 0;
  #started = 0;
  /** Calls that started earlier were sent under a limit that was lowered already. */
  #loweredAt = 0;
  #pausedUntil = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(
    readonly most: number,
    readonly clock: Clock,
  ) {
    this.#limit = most;
  }

  /** The number of calls that may be in flight now. */
  get limit(): number {
    return Math.floor(this.#limit);
  }

  /** Waits for a slot. @returns the call's number, for `leave` */
  async enter(signal: AbortSignal): Promise<number> {
    for (;;) {
      signal.throwIfAborted();
      const pause = this.#pausedUntil - this.clock.now();
      if (pause > 0) await this.clock.sleep(pause, signal);
      else if (this.#inFlight < this.limit) break;
      else await this.#placeFree(signal);
    }
    this.#inFlight++;
    return this.#started++;
  }

  /** @param busy null, or milliseconds to pause calls to an overloaded server */
  leave(call: number, busy: number | null): void {
    this.#inFlight--;
    if (busy === null) this.#limit = Math.min(this.most, this.#limit + 1 / this.#limit);
    else {
      this.#pausedUntil = Math.max(this.#pausedUntil, this.clock.now() + busy);
      if (call >= this.#loweredAt) {
        this.#limit = Math.max(1, Math.floor(this.#limit / 2));
        this.#loweredAt = this.#started;
      }
    }
    for (const wake of this.#waiting.splice(0, Math.max(1, this.limit - this.#inFlight))) wake();
  }

  #placeFree(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = () => reject(signal.reason as Error);
      this.#waiting.push(() => {
        signal.removeEventListener("abort", stop);
        resolve();
      });
      signal.addEventListener("abort", stop, { once: true });
    });
  }
}
