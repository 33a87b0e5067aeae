import { AstraError } from "@astra-rl/base";
import { distributed, endOnSecondSignal } from "@astra-rl/torch";
import type { Output } from "../program/output.js";

/** Thrown if a run was stopped between two steps. */
export class StoppedError extends AstraError {
  override name = "StoppedError";
}

/** Thrown when abandoning work that only waited, for example for a server. */
export class StoppedWaitingError extends AstraError {
  override name = "StoppedWaitingError";
}

/**
 * After a signal, work counts as waiting if the process is idle for this long; idle means less than this share of CPU
 * time.
 */
const IDLE_MILLISECONDS = 250;
const IDLE_SHARE = 0.05;

/**
 * Handles Ctrl-C: the first stops cleanly after the current step, or at once if the step only waits; a second one
 * kills the process, even during a computation that blocks JavaScript.
 *
 * @param computes whether this process itself computes; false where others do, so that the engine is not loaded
 */
export function stopOnInterrupt(
  output: Output,
  line = "Stopping after the step in progress; press Ctrl-C again to stop immediately.",
  { computes = true } = {},
) {
  const controller = new AbortController();
  const onSignal = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) {
      // Not reached if the engine is loaded, which ends the process before JavaScript runs.
      end();
      process.kill(process.pid, name);
      return;
    }
    output.alert(line);
    controller.abort();
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  const restore = computes ? endOnSecondSignal() : () => {};
  let timer: NodeJS.Timeout | undefined;
  /** Restores the previous signal handling. */
  const end = () => {
    clearInterval(timer);
    restore();
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  /**
   * Awaits work that ends cleanly once the signal is aborted. Gives up if the process is idle, that is, the work only
   * waits for a scorer or a server that may never answer.
   *
   * @throws StoppedWaitingError then
   */
  const orStopped = <T>(work: Promise<T>): Promise<T> => {
    // A rank is idle while it waits for another one that computes.
    if (distributed.worldSize() > 1) return work;
    const idle = new Promise<never>((_, reject) => {
      const watch = () => {
        let before = busyness();
        timer = setInterval(() => {
          const now = busyness();
          const share =
            Math.max(now.loop - before.loop, now.processor - before.processor) / (now.at - before.at);
          before = now;
          if (share > IDLE_SHARE) return;
          reject(new StoppedWaitingError("it was only waiting for an answer"));
        }, IDLE_MILLISECONDS);
      };
      if (controller.signal.aborted) watch();
      else controller.signal.addEventListener("abort", watch, { once: true });
    });
    return Promise.race([work, idle]).finally(() => clearInterval(timer));
  };
  /** Aborted by the first signal. */
  const signal: AbortSignal = controller.signal;
  return { signal, orStopped, end };
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

/** The message for a stopped run, with the command that resumes it. */
export function stoppedLine(command: string, step: number, steps: number, goOn: string): string {
  // Before the first step there is no checkpoint.
  const advice = step === 0 ? "there is no checkpoint to resume from" : `resume with ${goOn}`;
  return `${command}: stopped after step ${step} of ${steps}; ${advice}`;
}
