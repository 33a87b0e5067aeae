import { distributed } from "@astra-rl/torch";
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
  /** Replaces the last `live` lines on a terminal; otherwise an ordinary note of the first. */
  live(...lines: string[]): void;
  /** Leaves the last `live` lines where they are. */
  endLive(): void;
  /** Prints an error or warning, also with --quiet. */
  alert(line: string): void;
  readonly isTerminal: boolean;
  /** Terminal width in characters, and height in lines. */
  readonly columns: number;
  readonly rows: number;
}

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

export function createOutput(
  { stdout, stderr }: Streams,
  { quiet = false, mayOutlive, isRanked = false }: OutputOptions = {},
): Output {
  const rank = isRanked ? (distributed.launchedOptions()?.rank ?? 0) : 0;
  if (rank > 0) return SILENT;
  if (mayOutlive !== undefined) outliveStandardOutput(mayOutlive);
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
    columns,
    rows,
    result: (line) => {
      endLive();
      stdout.write(`${printable(line)}\n`);
    },
    json: (value) => {
      endLive();
      stdout.write(`${visibleJson(JSON.stringify(value))}\n`);
    },
    note: (line) => {
      if (!quiet) above(line);
    },
    live: (...lines) => {
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
    endLive,
    alert: above,
  };
}

const nothing = () => undefined;

/** Output of the other ranks, which have nothing to say that rank 0 does not. */
const SILENT: Output = {
  isTerminal: false,
  columns: 80,
  rows: 24,
  result: nothing,
  json: nothing,
  note: nothing,
  live: nothing,
  endLive: nothing,
  alert: nothing,
};
