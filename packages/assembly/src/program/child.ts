import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { AstraError } from "@astra-rl/base";
import { EXIT } from "./exit.js";

let program: string | null = null;

/** Tells which script runs this program, so that commands can start others of it. */
export function setProgram(script: string): void {
  program = script;
}

/** The script that runs this program. */
export function programScript(): string {
  if (program === null) throw new AstraError("internal: the program did not tell its script (setProgram)");
  return program;
}

/**
 * Runs a command of this program in a separate process, whose notes and warnings are shown, but not its result.
 *
 * @param signal if aborted, the process is stopped as by Ctrl-C
 * @returns its exit code
 */
export function runProgram(
  args: readonly string[],
  signal: AbortSignal,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<number> {
  // A separate process group, so that a Ctrl-C in the terminal reaches it once, from here.
  const child = spawn(process.execPath, [programScript(), ...args], {
    stdio: ["ignore", "ignore", "inherit"],
    env,
    detached: true,
  });
  const stop = () => void child.kill("SIGINT");
  signal.addEventListener("abort", stop, { once: true });
  return exitOf(child).finally(() => signal.removeEventListener("abort", stop));
}

/** The exit code of a process, once it has ended. */
export async function exitOf(child: ChildProcess): Promise<number> {
  const [code] = (await once(child, "exit")) as [number | null];
  return code ?? EXIT.failed;
}

/** The command that trains in a folder, or resumes there. */
export const trainArguments = (config: string, folder: string): string[] => [
  "train",
  config,
  "--run-dir",
  folder,
  ...(existsSync(join(folder, "checkpoints", "last")) ? ["--resume"] : []),
];
