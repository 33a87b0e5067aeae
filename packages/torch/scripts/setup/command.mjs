import { spawnSync } from "node:child_process";
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
  const output = `${result.stdout ?? ""}${result.stderr ?? ""}`;
  const ok = result.status === 0 && result.error === undefined;
  let reason = "";
  if (!ok) {
    const last = output.trim().split("\n").filter(Boolean).at(-1) ?? "";
    reason =
      result.error?.message ?? (last || `${program} exited with status ${result.status ?? result.signal}`);
  }
  return { ok, output, reason };
}
