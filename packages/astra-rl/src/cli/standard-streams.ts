import { diskReason } from "@astra-rl/torch";
import { EXIT } from "./exit.js";

/** What continues after standard output was closed; null: the process ends. */
let sequel: string | null = null;
let failure: NodeJS.ErrnoException | null = null;

/** For commands whose results are in files as well: a closed standard output must not end days of work. */
export function outliveStandardOutput(whatGoesOn: string): void {
  sequel = whatGoesOn;
}

/** The exit code that a command's own becomes where its results could not be written. */
export async function codeAfterWriting(code: number): Promise<number> {
  // The streams tell of a failed write in a turn of their own.
  await new Promise((resolve) => setImmediate(resolve));
  const isLost = failure !== null && failure.code !== "EPIPE";
  return code === EXIT.done && isLost ? EXIT.usage : code;
}

/**
 * Ends the process with a line where standard output cannot be written: 141, as a shell shows a broken pipe, where its
 * reader has left, else the code for surroundings that only the user can put right. Standard error is the last to be
 * told anything, so what it cannot take is dropped.
 */
export function watchStandardStreams(): void {
  process.stderr.on("error", () => {});
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    // Every later write fails as well.
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
