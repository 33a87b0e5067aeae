import { existsSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "@astra-rl/base";
import { readState, type CompleteState } from "./trainer-state.js";

/** The settings of a run: saved in each checkpoint, and compared on resume. */
export interface RunSettings {
  /** Plain JSON. */
  readonly record: Readonly<Record<string, unknown>>;
  /**
   * Changes since `record` was saved that forbid resuming, one clause each, such as "algorithm.beta was 0.1 and is
   * now 0.2"; empty if the run may resume.
   */
  changes(record: Readonly<Record<string, unknown>>): string[];
}

/** The end of a clause of `changes`; undefined for a missing value. */
export function wasAndIs(then: string | undefined, now: string | undefined): string {
  return `was ${then ?? "not given"} and is now ${now ?? "not given"}`;
}

/**
 * Reads the state of the checkpoint to resume from.
 *
 * @throws UsageError that names every changed setting that must not change
 */
export function readResumableState(folder: string, settings: RunSettings): CompleteState {
  const state = readState(folder);
  const changes = settings.changes(state.run);
  if (changes.length === 0) return state;
  throw new UsageError(
    "changed-settings",
    `${folder}: a run must be resumed with its original settings, but ${changes.join("; ")}; restore them, or ` +
      `start a ` +
      `new run from these weights`,
  );
}

/**
 * Checks that a run can be resumed, before any model is loaded.
 *
 * @throws UsageError if there is no run or no checkpoint, or if a setting changed that must not
 */
export function checkResumable(runDirectory: string, settings: RunSettings): void {
  const folder = join(runDirectory, "checkpoints", "last");
  if (!existsSync(folder)) throw new UsageError("no-checkpoint", noCheckpoint(runDirectory));
  readResumableState(folder, settings);
}

/** The error message for a folder without a checkpoint to resume from. */
export function noCheckpoint(runDirectory: string): string {
  if (!existsSync(runDirectory)) {
    return `${runDirectory}: there is no such run folder to resume; check its name, or start the run without --resume`;
  }
  return (
    `${join(runDirectory, "checkpoints", "last")}: there is no checkpoint to resume from; check the name of ` +
    `the run folder. ` +
    `A run that was stopped before its first checkpoint must be started again, in another folder or after ` +
    `deleting this one`
  );
}

/** The step of the last checkpoint; null if there is none. */
export function savedStep(runDirectory: string): number | null {
  const folder = join(runDirectory, "checkpoints", "last");
  return existsSync(folder) ? readState(folder).step : null;
}
