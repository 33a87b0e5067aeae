import { spawn } from "node:child_process";
import { once } from "node:events";

/**
 * Runs a program to its end without blocking this one.
 *
 * @param {string} program
 * @param {string[]} args
 * @param {string} cwd
 * @returns {Promise<{ ok: boolean, output: string }>} `output`: stdout and stderr in one text, as they came
 */
export async function runProgram(program, args, cwd) {
  const child = spawn(program, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk) => (output += chunk));
  }
  const [status] = await once(child, "close");
  return { ok: status === 0, output };
}
