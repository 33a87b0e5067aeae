import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";

/** The first executable file of that name on the path, or null. Starts no process. */
export function onPath(name, searchPath = process.env.PATH ?? "") {
  for (const directory of searchPath.split(delimiter)) {
    if (directory === "") continue;
    const candidate = join(directory, name);
    try {
      accessSync(candidate, constants.X_OK);
      if (statSync(candidate).isFile()) return candidate;
    } catch {
      // Not here: try the next directory of the path.
    }
  }
  return null;
}

/**
 * Runs a program to its end.
 *
 * @param {string} program
 * @param {readonly string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, show?: boolean, timeoutMilliseconds?: number }} [options]
 *   `show` passes its output through; otherwise it is kept for the error message.
 * @returns {{ ok: boolean, output: string, reason: string }} `reason`: one line, empty when ok
 */
export function execute(program, args, { cwd, env, show = false, timeoutMilliseconds } = {}) {
  const result = spawnSync(program, args, {
    cwd,
    env: { ...process.env, ...env },
    encoding: "utf8",
    stdio: ["ignore", show ? "inherit" : "pipe", show ? "inherit" : "pipe"],
    timeout: timeoutMilliseconds,
    maxBuffer: 64 * 1024 * 1024,
  });
  return outcome(program, result, `${result.stdout ?? ""}${result.stderr ?? ""}`);
}

/**
 * The same, without blocking this process meanwhile.
 *
 * @param {string} program
 * @param {readonly string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, show?: boolean }} [options]
 * @returns {Promise<{ ok: boolean, output: string, reason: string }>} `output`: stdout and stderr in one text, as they came
 */
export async function executeBeside(program, args, { cwd, env, show = false } = {}) {
  const stdio = ["ignore", ...Array(2).fill(show ? "inherit" : "pipe")];
  const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio });
  let output = "";
  for (const stream of show ? [] : [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk) => (output += chunk));
  }
  try {
    const [status, signal] = await once(child, "close");
    return outcome(program, { status, signal }, output);
  } catch (error) {
    return outcome(program, { error }, output);
  }
}

function outcome(program, { status, signal, error }, output) {
  const ok = status === 0 && error === undefined;
  const last = output.trim().split("\n").filter(Boolean).at(-1) ?? "";
  const reason = ok ? "" : (error?.message ?? (last || `${program} exited with status ${status ?? signal}`));
  return { ok, output, reason };
}
