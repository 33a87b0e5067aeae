import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { explainDiskErrors, makeFolder, UsageError } from "@astra-rl/torch";
import { noCheckpoint } from "./resume.js";
import { LEFT_OF_FILE, recoverRunFolder } from "./run-directory.js";
import { LOCK_FILE, RunLock, type RunLockOptions } from "./run-lock.js";

/** The configuration of the run with all its defaults. */
export const RESOLVED_CONFIGURATION = "config.resolved.yaml";

/** A name for the run of a configuration file: runs/<file>-<time>. */
export function defaultRunFolder(configurationPath: string, now = new Date()): string {
  const stamp = now.toISOString().slice(0, 19).replace("T", "-").replaceAll(":", "");
  return join("runs", `${basename(configurationPath, extname(configurationPath))}-${stamp}`);
}

/**
 * Makes the folder of a new run and takes it for this process alone.
 *
 * @param write puts the first files there
 * @returns the run's lock, which the caller lets go of
 * @throws UsageError when it holds files already, or cannot be written
 */
export function prepareRunFolder(folder: string, write: () => void): RunLock {
  checkNewRunFolder(folder);
  makeFolder(folder);
  const lock = RunLock.take(folder);
  try {
    // Another process may have been faster by less than this lock.
    checkNewRunFolder(folder);
    write();
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

/**
 * What a run and its loggers write before its first step; a run that ended before it, for whatever reason, does not bar its
 * folder.
 */
const BEFORE_THE_FIRST_STEP = [
  "tensorboard",
  "mlflow.json",
  "wandb.json",
  LOCK_FILE,
  RESOLVED_CONFIGURATION,
  "run.json",
  "inputs",
  "checkpoints",
];

function tookNoStep(folder: string): boolean {
  const names = readdirSync(folder);
  if (names.every((name) => name === LOCK_FILE)) return true;
  // Files that no run has written stay.
  if (!names.includes(RESOLVED_CONFIGURATION)) return false;
  const checkpoints = join(folder, "checkpoints");
  return (
    names.every((name) => BEFORE_THE_FIRST_STEP.includes(name) || LEFT_OF_FILE.test(name)) &&
    (!existsSync(checkpoints) || readdirSync(checkpoints).every((name) => name === ".probe"))
  );
}

/**
 * Locks the folder of a run that is resumed, and repairs what a killed process left there.
 *
 * @returns the run's lock, which the caller lets go of
 * @throws UsageError for a folder without a checkpoint, or one that another process holds
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
