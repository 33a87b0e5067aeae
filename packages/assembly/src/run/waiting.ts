import { AstraError } from "@astra-rl/base";
import { distributed } from "@astra-rl/torch";

/** Thrown if a run, an evaluation or a search was stopped by its signal. */
export class StoppedError extends AstraError {
  override name = "StoppedError";
}

/**
 * Does work that a signal ends: at its next check, or at once if it only waits, for example for an agent.
 *
 * @param message why nothing more came of it
 * @throws StoppedError
 */
export function untilStopped<T>(
  signal: AbortSignal | undefined,
  message: () => string,
  work: (check: () => void) => Promise<T>,
): Promise<T> {
  const stopped = () => new StoppedError(message());
  if (signal === undefined) return work(() => {});
  const check = () => {
    if (signal.aborted) throw stopped();
  };
  return unlessIdle(work(check), signal, stopped);
}

/** Thrown when a run is abandoned because it was to stop and only waited, for example for a server. */
export class StoppedWaitingError extends AstraError {
  override name = "StoppedWaitingError";

  constructor(
    /** The run folder. */
    readonly folder: string,
    readonly step: number,
    readonly steps: number,
  ) {
    super(`${folder}: training stopped after step ${step} of ${steps}; it was only waiting for an answer`);
  }
}

/** Work counts as waiting if the process uses less than this share of its time for this long. */
const IDLE_MILLISECONDS = 250;
const IDLE_SHARE = 0.05;

/**
 * Awaits work that ends cleanly once the signal is aborted. Gives up if the process is then idle, that is, the work
 * only waits for a scorer or a server that may never answer.
 *
 * @param abandoned the error thrown then
 */
export function unlessIdle<T>(work: Promise<T>, signal: AbortSignal, abandoned: () => Error): Promise<T> {
  // A rank is idle while it waits for another one that computes.
  if (distributed.worldSize() > 1) return work;
  let timer: NodeJS.Timeout | undefined;
  let watch = () => {};
  const idle = new Promise<never>((_, reject) => {
    watch = () => {
      let before = busyness();
      timer = setInterval(() => {
        const now = busyness();
        const share =
          Math.max(now.loop - before.loop, now.processor - before.processor) / (now.at - before.at);
        before = now;
        if (share <= IDLE_SHARE) reject(abandoned());
      }, IDLE_MILLISECONDS);
    };
    if (signal.aborted) watch();
    else signal.addEventListener("abort", watch, { once: true });
  });
  return Promise.race([work, idle]).finally(() => {
    clearInterval(timer);
    signal.removeEventListener("abort", watch);
  });
}

/** Active milliseconds so far of the event loop, and CPU time of all threads. */
function busyness(): { at: number; loop: number; processor: number } {
  const { user, system } = process.cpuUsage();
  return {
    at: performance.now(),
    loop: performance.eventLoopUtilization().active,
    processor: (user + system) / 1000,
  };
}
