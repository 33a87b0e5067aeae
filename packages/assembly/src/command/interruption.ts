import { AstraError } from "@astra-rl/base";
import { endOnSecondSignal } from "@astra-rl/torch";
import type { Output } from "../program/output.js";

/** Thrown if a run was stopped between two steps. */
export class StoppedError extends AstraError {
  override name = "StoppedError";
}

/**
 * Handles Ctrl-C: the first aborts the signal; a second one kills the process, even during a computation that blocks
 * JavaScript.
 *
 * @param computes whether this process itself computes; false where others do, so that the engine is not loaded
 */
export function stopOnInterrupt(
  output: Output,
  line = "Stopping after the step in progress; press Ctrl-C again to stop immediately.",
  { computes = true, controller = new AbortController() } = {},
) {
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
  /** Restores the previous signal handling. */
  const end = () => {
    restore();
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  /** Aborted by the first signal. */
  const signal: AbortSignal = controller.signal;
  return { signal, end };
}

/**
 * The message for a stopped run.
 *
 * @param resumption the arguments that resume it
 */
export function stoppedLine(
  command: string,
  { step, steps }: { step: number; steps: number },
  resumption: string,
): string {
  // Before the first step there is no checkpoint.
  const advice = step === 0 ? "there is no checkpoint to resume from" : `resume with ${resumption}`;
  return `${command}: stopped after step ${step} of ${steps}; ${advice}`;
}
