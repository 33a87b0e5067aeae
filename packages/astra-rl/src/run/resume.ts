import { existsSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "@astra-rl/torch";
import type { RunSettings } from "./run-settings.js";
import { readState, type CompleteState } from "./trainer-state.js";

/**
 * Reads the state of a checkpoint that a run is resumed from.
 *
 * @throws UsageError that names everything which must not have changed and has
 */
export function readResumableState(folder: string, settings: RunSettings): CompleteState {
  const state = readState(folder);
  const changes = settings.changes(state.run);
  if (changes.length === 0) return state;
  throw new UsageError(
    `${folder}: a run is resumed with what it was started with, but ${changes.join("; ")}; set it back, or start a ` +
      `new run from these weights`,
  );
}

/**
 * Checks, before any model is loaded, that a run may be resumed.
 *
 * @throws UsageError where there is no run, no checkpoint to go on from, or something that must not have changed
 */
export function checkResumable(runDirectory: string, settings: RunSettings): void {
  const folder = join(runDirectory, "checkpoints", "last");
  if (!existsSync(folder)) throw new UsageError(noCheckpoint(runDirectory));
  readResumableState(folder, settings);
}

/** What is wrong with a folder that has no checkpoint to go on from. */
export function noCheckpoint(runDirectory: string): string {
  if (!existsSync(runDirectory)) {
    return `${runDirectory}: there is no such run folder to go on with; check its name, or start the run without --resume`;
  }
  return (
    `${join(runDirectory, "checkpoints", "last")}: there is no checkpoint to go on from; check the name of the run folder. ` +
    `A run that was stopped before its first checkpoint is started again, in another folder or once this one is deleted`
  );
}

/** The step of the last checkpoint; null where there is none yet. */
export function savedStep(runDirectory: string): number | null {
  const folder = join(runDirectory, "checkpoints", "last");
  return existsSync(folder) ? readState(folder).step : null;
}
