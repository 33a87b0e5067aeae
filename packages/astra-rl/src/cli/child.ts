import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { EXIT } from "./exit.js";

/** The script that runs this program. */
export const PROGRAM = fileURLToPath(new URL("../../bin/astra-rl.js", import.meta.url));

/**
 * Runs a command of this program in a process of its own, whose notes and warnings are shown and whose result is not.
 *
 * @param signal aborted: it is asked to stop as by Ctrl-C
 * @returns its exit code
 */
export function runProgram(
  args: readonly string[],
  signal: AbortSignal,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<number> {
  // A group of its own, so that a Ctrl-C in the terminal reaches it once, from here.
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    stdio: ["ignore", "ignore", "inherit"],
    env,
    detached: true,
  });
  const stop = () => void child.kill("SIGINT");
  signal.addEventListener("abort", stop, { once: true });
  return exitOf(child).finally(() => signal.removeEventListener("abort", stop));
}

/** The exit code of a process, once it has ended. */
export const exitOf = (child: ChildProcess): Promise<number> =>
  new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? EXIT.failed));
  });
