/**
 * The sources of the kernels, on which alone depends what another instruction set does: while they are what they were when all
 * sets passed, the tests within the other sets need not run again.
 */
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/** The kernels and their callers, the flags that they are compiled with, the tiles that stand for AMX, and the smoke run. */
export const KERNEL_SOURCES = [
  "packages/torch/native",
  "packages/torch/src/kernels",
  "packages/torch/scripts/build.mjs",
  "packages/torch/test/emulator",
  "scripts/smoke.mjs",
];

/** Comments and white space, which change no kernel; what stands in quotes is kept. */
const INERT = /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|\/\/[^\n]*|\/\*[\s\S]*?\*\/|\s+/gu;

/**
 * SHA-256 over the names and contents of the kernels' sources, without comments and white space.
 *
 * @param {string} root of the repository
 */
export function kernelHash(root) {
  const digest = createHash("sha256");
  const visit = (path) => {
    const file = join(root, path);
    if (!existsSync(file)) throw new Error(`scripts/kernels.mjs: there is no ${path}`);
    if (statSync(file).isDirectory()) {
      for (const name of readdirSync(file).sort()) visit(`${path}/${name}`);
    } else {
      const code = readFileSync(file, "utf8").replace(INERT, (_, quoted) => quoted ?? " ");
      digest.update(`${path}\0${code}\0`);
    }
  };
  for (const path of KERNEL_SOURCES) visit(path);
  return digest.digest("hex");
}
