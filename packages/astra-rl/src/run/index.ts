// The run folder: its lock, its append-only files, its checkpoints, and the state needed to resume. Must not know
// what is trained, or which configuration the run came from.
export { Journal } from "./journal.js";
export {
  JOURNALS,
  LEFT_OF_FILE,
  RunDirectory,
  recoverRunFolder,
  type CheckpointTag,
} from "./run-directory.js";
export {
  ANSWERS,
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
