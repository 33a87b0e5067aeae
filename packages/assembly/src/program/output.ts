import { launchedOptions } from "@astra-rl/torch/distributed";
import { printable, visibleJson } from "@astra-rl/report";
import { outliveStandardOutput } from "./standard-streams.js";

/** Output of a command. */
export type Output = ReturnType<typeof createOutput>;

/** The used parts of a process's output streams. */
export interface Streams {
  stdout: { write(text: string): unknown };
  stderr: { write(text: string): unknown; isTTY?: boolean; columns?: number; rows?: number };
}

export interface OutputOptions {
  /** Hides notes and live lines. */
  quiet?: boolean;
  /** Whether the command may be one of several processes: then only rank 0 shows anything. */
  isRanked?: boolean;
  /** Message if standard output is closed or full and the command continues. Default: the process exits. */
  mayOutlive?: string;
}

const NOWHERE = { write: () => true };

export function createOutput(
  streams: Streams,
  { quiet = false, mayOutlive, isRanked = false }: OutputOptions = {},
) {
  const rank = isRanked ? (launchedOptions()?.rank ?? 0) : 0;
  // Rank 0 prints everything.
  const { stdout, stderr }: Streams = rank > 0 ? { stdout: NOWHERE, stderr: NOWHERE } : streams;
  if (rank === 0 && mayOutlive !== undefined) outliveStandardOutput(mayOutlive);
  const isTerminal = stderr.isTTY === true;
  const columns = stderr.columns ?? 80;
  const rows = stderr.rows ?? 24;
  let shown: readonly string[] = [];
  const erase = () => {
    // To the first column, and each line from the last to the first.
    if (shown.length > 0) stderr.write(`\r\u001B[2K${"\u001B[1A\u001B[2K".repeat(shown.length - 1)}`);
  };
  const draw = (lines: readonly string[]) => {
    shown = lines;
    stderr.write(lines.join("\n"));
  };
  const endLive = () => {
    if (shown.length > 0) stderr.write("\n");
    shown = [];
  };
  /** A line above the live ones. */
  const above = (line: string) => {
    erase();
    stderr.write(`${printable(line)}\n`);
    draw(shown);
  };
  return {
    isTerminal,
    /** Terminal width in characters, and height in lines. */
    columns,
    rows,
    /** Prints a line of the result. */
    result: (line: string): void => {
      endLive();
      stdout.write(`${printable(line)}\n`);
    },
    /** Prints a line of the result as JSON. */
    json: (value: unknown): void => {
      endLive();
      stdout.write(`${visibleJson(JSON.stringify(value))}\n`);
    },
    /** Prints a line about progress; hidden by --quiet. */
    note: (line: string): void => {
      if (!quiet) above(line);
    },
    /** Replaces the last `live` lines on a terminal; otherwise an ordinary note of the first. */
    live: (...lines: string[]): void => {
      if (quiet) return;
      if (!isTerminal) {
        stderr.write(`${printable(lines[0]!)}\n`);
        return;
      }
      // Truncated so that no line wraps.
      const cut = (line: string) =>
        Array.from(printable(line))
          .slice(0, columns - 1)
          .join("");
      if (shown.length === 0) stderr.write("\r\u001B[2K");
      else erase();
      draw(lines.map(cut));
    },
    /** Leaves the last `live` lines where they are. */
    endLive,
    /** Prints an error or warning, also with --quiet. */
    alert: above,
  };
}
