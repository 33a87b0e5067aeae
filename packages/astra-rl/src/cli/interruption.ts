import { AstraError, endOnSecondSignal } from "@astra-rl/torch";
import type { Output } from "./output.js";

export interface Interruption {
  /** Aborted by the first signal. */
  signal: AbortSignal;
  /**
   * Waits for work that ends in order once the signal is aborted, unless it does nothing but wait itself: for a judge or a
   * server that may never answer.
   *
   * @throws StoppedWaitingError then
   */
  orStopped: <T>(work: Promise<T>) => Promise<T>;
  /** Signals do again what they did before. */
  end: () => void;
}

/** Work was abandoned that only waited for an answer, of a server for example. */
export class StoppedWaitingError extends AstraError {
  override name = "StoppedWaitingError";
}

/** How long nothing may be computed, after a signal, before work counts as waiting, and how little is nothing. */
const IDLE_MILLISECONDS = 250;
const IDLE_SHARE = 0.05;

/**
 * Ctrl-C as a wish to stop: the first ends the step in progress in order, or at once where it only waits; a second one ends
 * the process, even in the midst of a computation that lets no JavaScript run.
 */
export function stopOnInterrupt(output: Output): Interruption {
  const controller = new AbortController();
  const onSignal = () => {
    if (controller.signal.aborted) return;
    output.alert("Stopping after the step in progress; once more stops at once.");
    controller.abort();
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  const restore = endOnSecondSignal();
  let timer: NodeJS.Timeout | undefined;
  const end = () => {
    clearInterval(timer);
    restore();
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  const orStopped = <T>(work: Promise<T>): Promise<T> => {
    const idle = new Promise<never>((_, reject) => {
      const watch = () => {
        let before = busyness();
        timer = setInterval(() => {
          const now = busyness();
          const share =
            Math.max(now.loop - before.loop, now.processor - before.processor) / (now.at - before.at);
          before = now;
          if (share > IDLE_SHARE) return;
          reject(new StoppedWaitingError("it only waited for an answer"));
        }, IDLE_MILLISECONDS);
      };
      if (controller.signal.aborted) watch();
      else controller.signal.addEventListener("abort", watch, { once: true });
    });
    return Promise.race([work, idle]).finally(() => clearInterval(timer));
  };
  return { signal: controller.signal, orStopped, end };
}

/** Milliseconds so far in which the event loop, or any thread of the process, computed. */
function busyness(): { at: number; loop: number; processor: number } {
  const { user, system } = process.cpuUsage();
  return {
    at: performance.now(),
    loop: performance.eventLoopUtilization().active,
    processor: (user + system) / 1000,
  };
}

/** The message of a run that was stopped, with the command that continues it. */
export function stoppedLine(command: string, step: number, steps: number, goOn: string): string {
  // Before its first step a run has no checkpoint.
  const advice = step === 0 ? "there is nothing to go on from" : `go on with ${goOn}`;
  return `${command}: stopped after step ${step} of ${steps}; ${advice}`;
}
