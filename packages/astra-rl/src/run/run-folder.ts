import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { explainDiskErrors, makeFolder, UsageError, writeFileAtomic } from "@astra-rl/torch";
import { parse } from "yaml";
import { stringifyConfiguration, type Configuration } from "../configuration/index.js";
import type { ComputeTypes } from "../models/index.js";
import {
  LEFT_OF_FILE,
  LOCK_FILE,
  noCheckpoint,
  recoverRunFolder,
  RunLock,
  type RunLockOptions,
} from "../training/index.js";

const FILE = "config.resolved.yaml";

/** A name for the run of a configuration file: runs/<file>-<time>. */
export function defaultRunFolder(configurationPath: string, now = new Date()): string {
  const stamp = now.toISOString().slice(0, 19).replace("T", "-").replaceAll(":", "");
  return join("runs", `${basename(configurationPath, extname(configurationPath))}-${stamp}`);
}

/**
 * Makes the folder of a new run, takes it for this process alone, and writes `config.resolved.yaml` into it.
 *
 * @returns the run's lock, which the caller lets go of
 * @throws UsageError when it holds files already, or cannot be written
 */
export function prepareRunFolder(folder: string, configuration: Configuration): RunLock {
  checkNewRunFolder(folder);
  makeFolder(folder);
  const lock = RunLock.take(folder);
  try {
    // Another process may have been faster by less than this lock.
    checkNewRunFolder(folder);
    writeResolvedConfiguration(folder, configuration);
    return lock;
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** @throws UsageError for a folder that holds files, or something that is no folder */
export function checkNewRunFolder(folder: string): void {
  const stats = statSync(folder, { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isDirectory()) throw new UsageError(`${folder}: must be a folder, but it is a file`);
  if (tookNoStep(folder)) return;
  throw new UsageError(
    `${folder}: holds files already; choose another --run-dir, or go on in it with --resume`,
  );
}

/** What a run writes before its first step; a run that ended before it, for whatever reason, does not bar its folder. */
const BEFORE_THE_FIRST_STEP = [LOCK_FILE, FILE, "run.json", "inputs", "checkpoints"];

function tookNoStep(folder: string): boolean {
  const names = readdirSync(folder);
  if (names.every((name) => name === LOCK_FILE)) return true;
  // What was put there by somebody else stays theirs.
  if (!names.includes(FILE)) return false;
  const checkpoints = join(folder, "checkpoints");
  return (
    names.every((name) => BEFORE_THE_FIRST_STEP.includes(name) || LEFT_OF_FILE.test(name)) &&
    (!existsSync(checkpoints) || readdirSync(checkpoints).every((name) => name === ".probe"))
  );
}

/**
 * Takes the folder of a run that is to go on for this process alone, and puts right what a killed process left there.
 *
 * @returns the run's lock, which the caller lets go of
 * @throws UsageError where there is no run to go on with, or another process is at work in it
 */
export function takeRunFolder(folder: string, options: RunLockOptions = {}): RunLock {
  // A name that is mistyped may be that of any folder; nothing is written there.
  if (!existsSync(join(folder, "checkpoints"))) throw new UsageError(noCheckpoint(folder));
  const lock = RunLock.take(folder, options);
  try {
    explainDiskErrors(folder, () => recoverRunFolder(folder));
    return lock;
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** Writes `config.resolved.yaml`, whole or not at all. */
export function writeResolvedConfiguration(folder: string, configuration: Configuration): void {
  writeFileAtomic(join(folder, FILE), [stringifyConfiguration(configuration)]);
}

/** The configuration with the types that "auto" came to stand for, so that it repeats the run on any machine. */
export function withComputeTypes(
  configuration: Configuration,
  computed: Partial<ComputeTypes> | null,
): Configuration {
  if (computed?.rollouts === undefined) return configuration;
  const { rollouts, updates } = computed;
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
  const models = recordedModels(file);
  // A system of the user's that tells no types: none were recorded.
  if (configuration.system !== undefined && models["updateDtype"] === undefined) return configuration;
  const { dtype, updateDtype = dtype } = configuration.models;
  const settled = (given: typeof dtype, recorded: unknown) =>
    given === "auto" && (recorded === "float32" || recorded === "bfloat16") ? recorded : given;
  const types = {
    dtype: settled(dtype, models["dtype"]),
    updateDtype: settled(updateDtype, models["updateDtype"]),
  };
  return { ...configuration, models: { ...configuration.models, ...types } };
}

/** The section `models` of a resolved configuration. @throws UsageError where somebody has damaged it */
function recordedModels(file: string): Record<string, unknown> {
  try {
    const { models = {} } = (parse(readFileSync(file, "utf8")) ?? {}) as { models?: Record<string, unknown> };
    return models ?? {};
  } catch (cause) {
    throw new UsageError(`${file}: cannot be read; restore it, or delete it to go on without it`, { cause });
  }
}
