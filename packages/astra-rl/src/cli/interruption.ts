import { endOnSecondSignal } from "@astra-rl/torch";
import type { Output } from "./output.js";

export interface Interruption {
  /** Aborted by the first signal. */
  signal: AbortSignal;
  /** Signals do again what they did before. */
  end: () => void;
}

/**
 * Ctrl-C as a wish to stop: the first ends the step in progress in order, a second one ends the process, even in the
 * midst of a computation that lets no JavaScript run.
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
  const end = () => {
    restore();
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  return { signal: controller.signal, end };
}

/** What a run that was stopped in order says, with the command that goes on. */
export function stoppedLine(command: string, step: number, steps: number, goOn: string): string {
  // Before its first step a run has no checkpoint.
  const advice = step === 0 ? "there is nothing to go on from" : `go on with ${goOn}`;
  return `${command}: stopped after step ${step} of ${steps}; ${advice}`;
}
