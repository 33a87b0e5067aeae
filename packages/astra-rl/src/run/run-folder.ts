import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { explainDiskErrors, UsageError, writeFileAtomic } from "@astra-rl/torch";
import { stringifyConfiguration, type Configuration } from "../configuration/index.js";

const FILE = "config.resolved.yaml";

/** A name for the run of a configuration file: runs/<file>-<time>. */
export function defaultRunFolder(configurationPath: string, now = new Date()): string {
  const stamp = now.toISOString().slice(0, 19).replace("T", "-").replaceAll(":", "");
  return join("runs", `${basename(configurationPath, extname(configurationPath))}-${stamp}`);
}

/**
 * Makes the folder of a run and writes `config.resolved.yaml` into it. A run that is resumed keeps the one it has.
 *
 * @param resume go on in a folder that may hold a run already
 * @throws UsageError when it holds one and must not; a system error when it cannot be written
 */
export function prepareRunFolder(
  folder: string,
  configuration: Configuration,
  { resume = false } = {},
): void {
  if (!resume && existsSync(folder) && readdirSync(folder).length > 0) {
    throw new UsageError(
      `${folder}: holds files already; choose another --run-dir, or go on in it with --resume`,
    );
  }
  makeFolder(folder);
  if (!existsSync(join(folder, FILE))) writeResolvedConfiguration(folder, configuration);
}

/**
 * Makes a folder and those above it. Not mkdirSync's own recursion: it never ends where a file system refuses a new
 * folder with ENOENT, as /proc does.
 */
export function makeFolder(path: string): void {
  if (existsSync(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeFolder(parent);
  explainDiskErrors(path, () => mkdirSync(path));
}

/** Writes `config.resolved.yaml`, whole or not at all. */
export function writeResolvedConfiguration(folder: string, configuration: Configuration): void {
  writeFileAtomic(join(folder, FILE), [stringifyConfiguration(configuration)]);
}
