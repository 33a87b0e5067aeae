import { existsSync, readdirSync, statSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { explainDiskErrors, makeFolder, UsageError } from "@astra-rl/base";
import { noCheckpoint } from "./resume.js";
import { LEFT_OF_FILE, recoverRunFolder } from "./run-directory.js";
import { LOCK_FILE, RunLock, type RunLockOptions } from "./run-lock.js";

/** File with the run's configuration, all defaults filled in. */
export const RESOLVED_CONFIGURATION = "config.resolved.yaml";

/** File with the answers of servers; kept when a run is resumed, so that nothing is asked twice. */
export const ANSWERS = "answers.jsonl";

/** The default run folder of a configuration file: runs/<file>-<time>. */
export function defaultRunFolder(configurationPath: string, now = new Date()): string {
  const stamp = now.toISOString().slice(0, 19).replace("T", "-").replaceAll(":", "");
  return join("runs", `${basename(configurationPath, extname(configurationPath))}-${stamp}`);
}

/**
 * Creates and locks the folder of a new run.
 *
 * @param write writes the first files
 * @returns the run's lock, which the caller releases @throws UsageError if it already holds files, or is not writable
 */
export function prepareRunFolder(folder: string, write: () => void): RunLock {
  checkNewRunFolder(folder);
  makeFolder(folder);
  return lockFor(folder, {}, () => {
    // Another process may have written files before this one took the lock.
    checkNewRunFolder(folder);
    write();
  });
}

/** Locks a folder and prepares it; keeps no lock on failure. */
function lockFor(folder: string, options: RunLockOptions, prepare: () => void): RunLock {
  const lock = RunLock.take(folder, options);
  try {
    prepare();
    return lock;
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** @throws UsageError for a folder that holds files, or a path that is not a folder */
export function checkNewRunFolder(folder: string): void {
  const stats = statSync(folder, { throwIfNoEntry: false });
  if (stats === undefined) return;
  if (!stats.isDirectory())
    throw new UsageError("not-a-folder", `${folder}: must be a folder, but it is a file`);
  if (tookNoStep(folder)) return;
  throw new UsageError(
    "folder-occupied",
    `${folder}: already contains files; choose another --run-dir, or resume its run with --resume`,
  );
}

/**
 * Files that a run and its loggers write before the first step. If a run ended before that, its folder can be reused.
 */
const BEFORE_THE_FIRST_STEP = [
  ANSWERS,
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
  // Do not remove files that no run has written.
  if (!names.includes(RESOLVED_CONFIGURATION)) return false;
  const checkpoints = join(folder, "checkpoints");
  return (
    names.every((name) => BEFORE_THE_FIRST_STEP.includes(name) || LEFT_OF_FILE.test(name)) &&
    (!existsSync(checkpoints) || readdirSync(checkpoints).every((name) => name === ".probe"))
  );
}

/**
 * Locks the folder of a resumed run, and repairs leftovers of a killed process.
 *
 * @returns the run's lock, which the caller releases @throws UsageError for a folder without a checkpoint, or locked
 * by another process
 */
export function takeRunFolder(folder: string, options: RunLockOptions = {}): RunLock {
  // A mistyped name may point to any folder: write nothing there.
  if (!existsSync(join(folder, "checkpoints"))) throw new UsageError("no-checkpoint", noCheckpoint(folder));
  return lockFor(folder, options, () => explainDiskErrors(folder, () => recoverRunFolder(folder)));
}
