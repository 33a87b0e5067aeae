// The folder of a run: its lock, the files that it grows, its checkpoints, and what it needs to be resumed. Must not know
// what is trained, or which configuration made the run.
export { Journal } from "./journal.js";
export {
  JOURNALS,
  LEFT_OF_FILE,
  RunDirectory,
  recoverRunFolder,
  type CheckpointTag,
} from "./run-directory.js";
export {
  checkNewRunFolder,
  defaultRunFolder,
  prepareRunFolder,
  RESOLVED_CONFIGURATION,
  takeRunFolder,
} from "./run-folder.js";
export { LOCK_FILE, RunLock, type RunLockOptions } from "./run-lock.js";
export { wasAndIs, type RunSettings } from "./run-settings.js";
export { checkResumable, noCheckpoint, readResumableState, savedStep } from "./resume.js";
export {
  readState,
  STATE_VERSION,
  type CompleteState,
  type SavedState,
  type TrainerState,
} from "./trainer-state.js";
