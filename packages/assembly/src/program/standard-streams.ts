import { diskReason } from "@astra-rl/base";
import { EXIT } from "./exit.js";

/** Description of what continues after standard output is closed; null: the process exits. */
let sequel: string | null = null;
let failure: NodeJS.ErrnoException | null = null;

/** For commands that also write results to files: a closed standard output must not end days of work. */
export function outliveStandardOutput(whatGoesOn: string): void {
  sequel = whatGoesOn;
}

/** The final exit code: replaces the command's own if its results could not be written. */
export async function codeAfterWriting(code: number): Promise<number> {
  // Streams report failed writes in a later turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
  const isLost = failure !== null && failure.code !== "EPIPE";
  return code === EXIT.done && isLost ? EXIT.usage : code;
}

/**
 * Exits with a message if standard output cannot be written: with 141, a shell's code for a broken pipe, if the
 * reader has left, else with the usage code. Errors of standard error are ignored, because there is nowhere to report
 * them.
 */
export function watchStandardStreams(): void {
  process.stderr.on("error", () => {});
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    // Handle only the first failure; later writes fail as well.
    if (failure !== null) return;
    failure = error;
    const code = error.code ?? "";
    const isClosed = code === "EPIPE";
    const what = isClosed
      ? "standard output was closed by its reader"
      : `standard output cannot be written: ${diskReason(code)?.split(";")[0] ?? error.message} (${code})`;
    process.stderr.write(`astra-rl: ${what}${sequel === null ? "" : `; ${sequel}`}\n`);
    if (sequel === null) process.exit(isClosed ? EXIT.closedPipe : EXIT.usage);
  });
}
