/**
 * Runs a fuzzer's cases in child processes, so that a case that crashes its process, or never ends, is reported by its
 * number and the others still run.
 */
import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { Random } from "./random.js";

/** A completed case, or the engine's message if it refused. */
export interface Outcome {
  refused: string | null;
}

export interface Fuzzer {
  /** The kind of a case, for the summary. */
  about: string;
  /**
   * Runs one case; throws an Error if the engine broke a rule. `tell` records what is about to run: it is shown if that
   * crashes the process.
   */
  run(random: Random, tell: (what: string) => void, index: number): Outcome;
  /** Called before the first case of a process. */
  prepare?(folder: string): void;
}

export interface Failure {
  index: number;
  what: string;
}

export interface Summary {
  cases: number;
  refused: number;
  failures: Failure[];
  seconds: number;
}

export interface RunOptions {
  name: string;
  cases: number;
  seed: number;
  /** The first case. Default: 0. */
  from?: number;
  /** Limit of processor time per case: wall-clock time is meaningless on a busy machine. Default: 60. */
  secondsPerCase?: number;
  /** Cases per process: leaks and exhausted resources are detected, and end with the process. Default: 20,000. */
  casesPerProcess?: number;
  /** Called with each failure when it is found. */
  report?: (failure: Failure) => void;
}

const entry = fileURLToPath(new URL("run.ts", import.meta.url));

/** Written by the child before each case, always in the same place. */
const noteBytes = 2000;

function note(file: number, index: number, refused: number, what: string): void {
  const text = Buffer.alloc(noteBytes, " ");
  text.write(`${index} ${refused}\n${what}`);
  writeSync(file, text, 0, noteBytes, 0);
}

function readNote(path: string): { index: number; refused: number; what: string } {
  const [numbers, ...what] = readFileSync(path, "utf8").trimEnd().split("\n");
  const [index, refused] = numbers!.split(" ");
  return { index: Number(index ?? NaN), refused: Number(refused), what: what.join("\n") };
}

/** Runs all cases; a case that crashes or hangs ends its process and is skipped in the next one. */
export async function runFuzzer(options: RunOptions): Promise<Summary> {
  const { name, cases, seed, from = 0, secondsPerCase = 60, casesPerProcess = 20_000, report } = options;
  const folder = mkdtempSync(join(tmpdir(), `fuzz-${name}-`));
  const notePath = join(folder, "note");
  const summary: Summary = { cases: 0, refused: 0, failures: [], seconds: 0 };
  const fail = (failure: Failure) => {
    summary.failures.push(failure);
    report?.(failure);
  };
  const started = performance.now();
  try {
    let next = from;
    while (next < from + cases) {
      const count = Math.min(casesPerProcess, from + cases - next);
      closeSync(openSync(notePath, "w"));
      const ended = await runChild(name, { seed, from: next, count, folder, secondsPerCase }, fail);
      if (ended.finished) {
        summary.cases += count;
        summary.refused += ended.refused;
        next += count;
        continue;
      }
      const { index, refused, what } = readNote(notePath);
      if (!Number.isInteger(index) || index < next) {
        throw new Error(`the process of fuzzer ${name} ended before its first case: ${ended.why}`);
      }
      fail({ index, what: `${ended.why}\n  ${what}` });
      summary.cases += index + 1 - next;
      summary.refused += refused;
      next = index + 1;
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  summary.seconds = (performance.now() - started) / 1000;
  return summary;
}

interface ChildOptions {
  seed: number;
  from: number;
  count: number;
  folder: string;
  secondsPerCase: number;
}

function runChild(
  name: string,
  { seed, from, count, folder, secondsPerCase }: ChildOptions,
  fail: (failure: Failure) => void,
): Promise<{ finished: true; refused: number } | { finished: false; why: string }> {
  return new Promise((fulfil, reject) => {
    const numbers = [seed, from, count].map(String);
    const child = spawn(process.execPath, ["--import", "tsx", entry, "--child", name, ...numbers, folder], {
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    let refused: number | null = null;
    let hung = false;
    let errors = "";
    child.stderr?.on("data", (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-20_000)));
    child.on("message", (message: { failure: Failure } | { refused: number }) => {
      if ("failure" in message) fail(message.failure);
      else refused = message.refused;
    });
    let begun = { note: "", worked: 0, at: 0 };
    const watch = setInterval(() => {
      const now = {
        note: readFileSync(join(folder, "note"), "utf8"),
        worked: workedSeconds(child.pid),
        at: clock(),
      };
      if (now.note !== begun.note || now.note === "") begun = now;
      // A process that waits forever uses no processor time.
      else if (now.worked - begun.worked > secondsPerCase || now.at - begun.at > 20 * secondsPerCase) {
        hung = true;
        child.kill("SIGKILL");
      }
    }, 1000);
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearInterval(watch);
      if (code === 0 && refused !== null) return fulfil({ finished: true, refused });
      const way = hung ? `no end within ${secondsPerCase} s` : (signal ?? `exit code ${code}`);
      // The line with the reason, before any stack trace.
      const lines = errors.split("\n").filter((line) => !/^\s*$|Warning|^frame #/u.test(line));
      fulfil({ finished: false, why: `${way} ${lines.slice(-4).join(" / ")}`.trim() });
    });
  });
}

const clock = () => performance.now() / 1000;

/** Processor seconds of a process over all threads; wall-clock seconds if unavailable. */
function workedSeconds(pid: number | undefined): number {
  try {
    // After the name, which is in parentheses: state, …; user and system time are the 12th and 13th, in hundredths.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /su, "")
      .split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return clock();
  }
}

/** The child's side: runs `count` cases and reports failures to its parent. */
export function runCases(fuzzer: Fuzzer, seed: number, from: number, count: number, folder: string): void {
  const file = openSync(join(folder, "note"), "r+");
  fuzzer.prepare?.(folder);
  let refused = 0;
  for (let index = from; index < from + count; index += 1) {
    try {
      note(file, index, refused, "");
      const outcome = fuzzer.run(new Random(seed, index), (what) => note(file, index, refused, what), index);
      if (outcome.refused !== null) refused += 1;
    } catch (error) {
      const { what } = readNote(join(folder, "note"));
      process.send?.({ failure: { index, what: `${messages(error)}\n  ${what}` } });
    }
  }
  process.send?.({ refused }, () => process.disconnect?.());
}

/** One case in this process, with all its output. */
export function runOneCase(fuzzer: Fuzzer, seed: number, index: number): void {
  const folder = mkdtempSync(join(tmpdir(), "fuzz-one-"));
  try {
    fuzzer.prepare?.(folder);
    const outcome = fuzzer.run(new Random(seed, index), (what) => process.stdout.write(`${what}\n`), index);
    process.stdout.write(outcome.refused === null ? "it ran\n" : `refused: ${outcome.refused}\n`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function messages(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? "" : `: ${messages(error.cause)}`;
  return `${error.name}: ${error.message}${cause}`;
}
