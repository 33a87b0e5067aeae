import { printable, visibleJson } from "../report/index.js";
import { outliveStandardOutput } from "./standard-streams.js";

/** Where a command writes, and how the user wants it. */
export interface Output {
  /** A line of the result. */
  result(line: string): void;
  /** A line of the result as JSON. */
  json(value: unknown): void;
  /** A line about the progress of the command; not shown with --quiet. */
  note(line: string): void;
  /** Replaces the last `live` line on a terminal; elsewhere an ordinary note. */
  live(line: string): void;
  /** Ends a `live` line. */
  endLive(): void;
  /** An error or a warning: shown always. */
  alert(line: string): void;
  readonly isTerminal: boolean;
  /** Characters in a line of the terminal. */
  readonly columns: number;
}

/** The two streams of a process, as far as they are used here. */
export interface Streams {
  stdout: { write(text: string): unknown };
  stderr: { write(text: string): unknown; isTTY?: boolean; columns?: number };
}

export interface OutputOptions {
  /** Leaves out notes and live lines. */
  quiet?: boolean;
  /** Said when standard output is closed or full and the command continues. Default: the process ends. */
  mayOutlive?: string;
}

export function createOutput(
  { stdout, stderr }: Streams,
  { quiet = false, mayOutlive }: OutputOptions = {},
): Output {
  if (mayOutlive !== undefined) outliveStandardOutput(mayOutlive);
  const isTerminal = stderr.isTTY === true;
  const columns = stderr.columns ?? 80;
  let isLive = false;
  const endLive = () => {
    if (isLive) stderr.write("\n");
    isLive = false;
  };
  return {
    isTerminal,
    columns,
    result: (line) => {
      endLive();
      stdout.write(`${printable(line)}\n`);
    },
    json: (value) => {
      endLive();
      stdout.write(`${visibleJson(JSON.stringify(value))}\n`);
    },
    note: (line) => {
      if (quiet) return;
      endLive();
      stderr.write(`${printable(line)}\n`);
    },
    live: (line) => {
      if (quiet) return;
      if (!isTerminal) {
        stderr.write(`${printable(line)}\n`);
        return;
      }
      // Back to the first column, erase the line; cut so that it never wraps.
      stderr.write(
        `\r\u001B[2K${Array.from(printable(line))
          .slice(0, columns - 1)
          .join("")}`,
      );
      isLive = true;
    },
    endLive,
    alert: (line) => {
      endLive();
      stderr.write(`${printable(line)}\n`);
    },
  };
}
