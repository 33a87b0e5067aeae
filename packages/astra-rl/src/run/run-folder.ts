import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { explainDiskErrors, UsageError, writeFileAtomic } from "@astra-rl/torch";
import { parse } from "yaml";
import { stringifyConfiguration, type Configuration } from "../configuration/index.js";
import type { ComputeTypes } from "../models/index.js";

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

/** The configuration with the types that "auto" came to stand for, so that it repeats the run on any machine. */
export function withComputeTypes(
  configuration: Configuration,
  { rollouts, updates }: ComputeTypes,
): Configuration {
  const types = { dtype: rollouts, updateDtype: updates } as Partial<Configuration["models"]>;
  return { ...configuration, models: { ...configuration.models, ...types } };
}

/**
 * The configuration with the types of the run that a folder holds wherever it leaves them to "auto": on another machine
 * "auto" may stand for others, which a resumed run must not compute in.
 */
export function withRecordedTypes(configuration: Configuration, folder: string): Configuration {
  const file = join(folder, FILE);
  if (!existsSync(file)) return configuration;
  const { models = {} } = (parse(readFileSync(file, "utf8")) ?? {}) as { models?: Record<string, unknown> };
  const { dtype, updateDtype = dtype } = configuration.models;
  const settled = (given: typeof dtype, recorded: unknown) =>
    given === "auto" && (recorded === "float32" || recorded === "bfloat16") ? recorded : given;
  const types = {
    dtype: settled(dtype, models["dtype"]),
    updateDtype: settled(updateDtype, models["updateDtype"]),
  };
  return { ...configuration, models: { ...configuration.models, ...types } };
}
