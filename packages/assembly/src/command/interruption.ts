import { distributed, endOnSecondSignal } from "@astra-rl/torch";
import type { Output } from "../program/output.js";

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
 * Runs what Ctrl-C ends after the rollouts in progress, so that sessions with agents are ended or listed. Several
 * processes must end together, so that Ctrl-C kills them.
 *
 * @param run calls `onLoaded` once all models are loaded; until then Ctrl-C kills
 */
export async function untilInterrupted<T>(
  output: Output,
  run: (hooks: { signal: AbortSignal; onLoaded: () => void }) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  let interruption: ReturnType<typeof stopOnInterrupt> | null = null;
  const onLoaded = () => {
    if (distributed.worldSize() > 1) return;
    const line = "Stopping after the rollouts in progress; press Ctrl-C again to stop immediately.";
    interruption = stopOnInterrupt(output, line, { controller });
  };
  try {
    return await run({ signal: controller.signal, onLoaded });
  } finally {
    (interruption as ReturnType<typeof stopOnInterrupt> | null)?.end();
  }
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
