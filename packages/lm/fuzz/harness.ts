// Runs cases of a fuzzer in a child process, so that a crash or a hang is reported with its seed.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { AstraError } from "@astra-rl/base";
import { Random } from "./random.js";

export interface Fuzzer {
  /** One line: what is mutated. */
  name: string;
  /** Prepares what every case uses, once per process; returns a function that cleans up. */
  begin(): Promise<() => Promise<void> | void>;
  /** One case. It must either complete, or throw an AstraError that names the place. */
  runCase(random: Random): Promise<void>;
  /** Whether an error's message names the place of the fault. */
  namesPlace(message: string): boolean;
}

/** Processor seconds that a case may take. */
const CASE_SECONDS = 5;
/**
 * Processor seconds without output after which a case counts as hung; wall-clock time is meaningless on a busy machine.
 */
const SILENCE = 60;
/** Wall-clock seconds, for a case that waits forever. */
const LONGEST_SILENCE = 1200;
/** MiB of JavaScript values: a case that needs more ends its process. */
const HEAP = 1024;

type Report = { begun: number } | { failed: number; why: string } | { done: true };

/**
 * The program of one fuzzer: `--cases N --seed S`; case i has seed S + i, so that `--cases 1 --seed X` repeats one.
 * Prints every failure with its seed, and exits with status 1 if there is any.
 */
export async function fuzz(script: string, fuzzer: Fuzzer): Promise<void> {
  const { values } = parseArgs({
    options: {
      cases: { type: "string", default: "1000" },
      seed: { type: "string", default: "1" },
      child: { type: "boolean", default: false },
    },
  });
  const [cases, seed] = [Number(values.cases), Number(values.seed)];
  if (values.child) await runChild(fuzzer, seed, cases);
  else process.exitCode = (await runParent(script, fuzzer.name, seed, cases)) === 0 ? 0 : 1;
}

async function runChild(fuzzer: Fuzzer, seed: number, cases: number): Promise<void> {
  // The parent has exited.
  process.once("disconnect", () => process.exit());
  const tell = (report: Report) => void process.send!(report);
  const end = await fuzzer.begin();
  for (let at = seed; at < seed + cases; at++) {
    tell({ begun: at });
    const before = process.cpuUsage();
    try {
      await fuzzer.runCase(new Random(at));
    } catch (error) {
      const why = verdict(error, fuzzer);
      if (why !== null) tell({ failed: at, why });
    }
    const { user, system } = process.cpuUsage(before);
    const seconds = (user + system) / 1e6;
    if (seconds > CASE_SECONDS)
      tell({ failed: at, why: `took ${seconds.toFixed(1)} s of the processor's time` });
  }
  await end();
  tell({ done: true });
  process.disconnect();
}

/** What is wrong with an error; null if it is acceptable. */
function verdict(error: unknown, fuzzer: Fuzzer): string | null {
  if (!(error instanceof AstraError))
    return `raw error: ${error instanceof Error ? error.stack : String(error)}`;
  if (error.message.startsWith("internal:")) return `internal error: ${error.stack}`;
  if (!fuzzer.namesPlace(error.message)) return `does not name the place: ${error.message}`;
  if (error.message.length > 4000) return `message of ${error.message.length} characters`;
  return null;
}

async function runParent(script: string, name: string, seed: number, cases: number): Promise<number> {
  const begin = Date.now();
  let failures = 0;
  let done = 0;
  const summary = () => {
    const seconds = ((Date.now() - begin) / 1000).toFixed(0);
    process.stdout.write(`${name}: ${done} cases from seed ${seed}, ${failures} failures, ${seconds} s\n`);
  };
  // A long run may be interrupted at any time, and still prints its summary.
  process.once("SIGINT", () => {
    summary();
    process.exit(failures === 0 ? 0 : 1);
  });
  const fail = (at: number, why: string) => {
    failures++;
    process.stdout.write(`${name}: seed ${at}: ${why}\n`);
  };
  for (let next = seed; next < seed + cases;) {
    const begun = (at: number) => (done = at - seed);
    const ended = await runProcess(script, next, seed + cases - next, { begun, fail });
    done = ended === null ? cases : ended.at - seed + 1;
    if (ended === null) break;
    fail(ended.at, ended.why);
    next = ended.at + 1;
  }
  summary();
  return failures;
}

/** Runs cases until the process is done (null) or one case ended it. */
function runProcess(
  script: string,
  seed: number,
  cases: number,
  tell: { begun: (at: number) => void; fail: (at: number, why: string) => void },
): Promise<{ at: number; why: string } | null> {
  return new Promise((resolve) => {
    const child = spawn(
      process.execPath,
      ["--import", "tsx", `--max-old-space-size=${HEAP}`, fileURLToPath(script), "--child"].concat(
        ["--seed", String(seed)],
        ["--cases", String(cases)],
      ),
      { stdio: ["ignore", "ignore", "pipe", "ipc"], env: { ...process.env, OMP_NUM_THREADS: "1" } },
    );
    let at = seed;
    let why: string | null = null;
    let done = false;
    let output = "";
    // When the process was first found silent, and its processor time then; null if there was output since.
    let heard: { time: number; used: number } | null = null;
    const watchdog = setInterval(() => {
      heard ??= { time: Date.now(), used: processSeconds(child.pid) };
      const used = processSeconds(child.pid) - heard.used;
      const waited = (Date.now() - heard.time) / 1000;
      if (used < SILENCE && waited < LONGEST_SILENCE) return;
      why = `no word for ${used.toFixed(0)} s of the processor's time and ${waited.toFixed(0)} s of the clock's`;
      child.kill("SIGKILL");
    }, 5000);
    child.stderr!.on("data", (chunk: Buffer) => (output = (output + chunk.toString()).slice(-2000)));
    child.on("message", (report: Report) => {
      if ("begun" in report) tell.begun((at = report.begun));
      else if ("failed" in report) tell.fail(report.failed, report.why);
      else done = true;
      heard = null;
    });
    child.on("close", (code, signal) => {
      clearInterval(watchdog);
      resolve(done ? null : { at, why: why ?? `the process exited (${signal ?? code}): ${output}` });
    });
  });
}

/** Processor seconds of a process so far; 0 if the system does not report it. */
function processSeconds(id: number | undefined): number {
  try {
    // The name in parentheses may contain spaces; user and system time are the 12th and 13th of what follows, in
    // hundredths.
    const fields = readFileSync(`/proc/${id}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  } catch {
    return 0;
  }
}
