import type { Output } from "./output.js";

/** Ctrl-C as a wish to stop: the first ends the step in progress in order, a second one ends the process. */
export function stopOnInterrupt(output: Output): { signal: AbortSignal; end: () => void } {
  const controller = new AbortController();
  const onSignal = () => {
    output.alert("Stopping after the step in progress; once more stops at once.");
    controller.abort();
    end();
  };
  const end = () => {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return { signal: controller.signal, end };
}
