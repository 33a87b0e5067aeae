/** What the scripts of a release share. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Of the repository. */
export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** A JSON file of the repository. */
export const readJson = (path) => JSON.parse(readFileSync(join(root, path), "utf8"));

/**
 * Runs a program to its end, and returns what it wrote to stdout.
 *
 * @param {string} program
 * @param {readonly string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv }} [options]
 * @returns {string}
 * @throws {Error} with its output if it fails
 */
export function run(program, args, options = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    ...options,
    encoding: "utf8",
    maxBuffer: 256 << 20,
  });
  if (error !== undefined || status !== 0) {
    const ending = error?.message ?? `ended with ${status}`;
    throw new Error(`${program} ${args.join(" ")}: ${ending}\n${stdout ?? ""}${stderr ?? ""}`.trim());
  }
  return stdout;
}

/** Where a release is packed by default, and the file of checksums there: `sha256sum --check` reads it. */
export const PACKED = join(root, ".cache/release/packages");
export const CHECKSUMS = "SHA256SUMS";

/**
 * The packed packages of a folder, checked against their checksums, those first that others depend on.
 *
 * @param {string} folder
 * @returns {{ name: string, version: string, path: string }[]}
 */
export function packedIn(folder) {
  return readFileSync(join(folder, CHECKSUMS), "utf8")
    .trim()
    .split("\n")
    .map((line) => {
      const [sha256, filename] = line.split(/\s+/u);
      const path = join(folder, filename);
      const actual = createHash("sha256").update(readFileSync(path)).digest("hex");
      if (actual !== sha256) throw new Error(`${path} has SHA-256 ${actual}, not ${sha256} as packed`);
      const { name, version } = JSON.parse(run("tar", ["-xzOf", path, "package/package.json"]));
      return { name, version, path };
    });
}
