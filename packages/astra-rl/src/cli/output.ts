import { printable, visibleJson } from "../report/index.js";
import { outliveStandardOutput } from "./standard-streams.js";

/** Output of a command. */
export interface Output {
  /** Prints a line of the result. */
  result(line: string): void;
  /** Prints a line of the result as JSON. */
  json(value: unknown): void;
  /** Prints a line about progress; hidden by --quiet. */
  note(line: string): void;
  /** Replaces the last `live` line on a terminal; otherwise an ordinary note. */
  live(line: string): void;
  /** Ends a `live` line. */
  endLive(): void;
  /** Prints an error or warning, also with --quiet. */
  alert(line: string): void;
  readonly isTerminal: boolean;
  /** Terminal width in characters. */
  readonly columns: number;
}

/** The used parts of a process's output streams. */
export interface Streams {
  stdout: { write(text: string): unknown };
  stderr: { write(text: string): unknown; isTTY?: boolean; columns?: number };
}

export interface OutputOptions {
  /** Hides notes and live lines. */
  quiet?: boolean;
  /** Message if standard output is closed or full and the command continues. Default: the process exits. */
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
      // Return to the first column and erase the line; truncated so that it never wraps.
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
