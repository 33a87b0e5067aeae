import { closeSync, existsSync, openSync, readdirSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import {
  explainDiskErrors,
  makeFolder,
  recoverFolder,
  replaceFolder,
  requireRegularFiles,
  UsageError,
} from "@astra-rl/torch";
import { Journal } from "./journal.js";
import { RunLock, type RunLockOptions } from "./run-lock.js";

/** A checkpoint's name in `checkpoints/`. */
export type CheckpointTag = "last" | "best";

/** The files to which a run adds lines, in the order in which each step does. */
export const JOURNALS = ["graphs", "evaluations", "metrics"] as const;

const KEPT = /^step-(\d+)$/;

/** What processes that were killed while they wrote leave: in `checkpoints/`, and in any folder. */
const LEFT_OF_CHECKPOINT = /^\.+(last|best)(\.(writing|old))+$|^\.probe$/;
/** The file that a process which was killed had begun to write. */
export const LEFT_OF_FILE = /\.\d+-[0-9a-f]{8}\.partial$/;

export interface OpenOptions extends RunLockOptions {
  resume: boolean;
  /** The run's lock where the caller has taken it already; it stays the caller's. */
  lock?: RunLock;
}

/**
 * The folder of one run: `metrics.jsonl`, `graphs.jsonl` and `evaluations.jsonl`, to which lines are only ever added,
 * and `checkpoints/`: `last`, `best`, and those before the last that are kept, as `step-<n>`.
 *
 * Opening takes it for this process alone, and removes what killed processes have left; `close` lets go of it.
 */
export class RunDirectory {
  readonly graphs: Journal;
  readonly evaluations: Journal;
  readonly metrics: Journal;
  #lock: RunLock | null = null;
  /** Whether the lock was taken here, and is let go of here. */
  #isOwn = false;

  constructor(readonly path: string) {
    this.graphs = new Journal(join(path, "graphs.jsonl"));
    this.evaluations = new Journal(join(path, "evaluations.jsonl"));
    this.metrics = new Journal(join(path, "metrics.jsonl"));
  }

  /**
   * Makes the folders and checks that they can be written, before anything is computed.
   *
   * @throws UsageError when they cannot, another process is at work in it, or the folder holds a run already and
   * `resume` is false
   */
  open({ resume, lock, onTakeover }: OpenOptions): void {
    // A folder that was renamed since its lock was taken is not to be made anew.
    lock?.check();
    makeFolder(join(this.path, "checkpoints"));
    this.#isOwn = lock === undefined;
    this.#lock = lock ?? RunLock.take(this.path, onTakeover === undefined ? {} : { onTakeover });
    try {
      this.#open(resume);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  #open(resume: boolean): void {
    explainDiskErrors(this.path, () => {
      if (!resume && JOURNALS.some((name) => this[name].bytes > 0)) {
        throw new UsageError(
          `${this.path}: holds the metrics of another run; resume that run, or choose another folder`,
        );
      }
      recoverRunFolder(this.path);
      // A folder may exist and still refuse new files, or be on a full disk; better to hear of it now.
      const probe = join(this.path, "checkpoints", ".probe");
      const handle = openSync(probe, "w");
      try {
        writeSync(handle, "probe");
      } finally {
        closeSync(handle);
        rmSync(probe, { force: true });
      }
    });
  }

  close(): void {
    for (const name of JOURNALS) this[name].close();
    if (this.#isOwn) this.#lock?.release();
    this.#lock = null;
  }

  /** Asked before every write. @throws UsageError where the folder no longer is this process's; see `RunLock.check` */
  check(): void {
    this.#lock?.check();
  }

  /** Has a checkpoint written, and asks once more before it takes its place. */
  async #checked(write: (folder: string) => Promise<void>, temporary: string): Promise<void> {
    this.check();
    try {
      await write(temporary);
    } finally {
      // Where the folder was renamed meanwhile, that says more than a file that could not be written.
      this.check();
    }
  }

  checkpointPath(tag: CheckpointTag): string {
    return join(this.path, "checkpoints", tag);
  }

  /** True when there is a complete checkpoint of that name. */
  hasCheckpoint(tag: CheckpointTag): boolean {
    return existsSync(this.checkpointPath(tag));
  }

  /** Replaces a checkpoint whole; see `replaceFolder`. */
  async writeCheckpoint(tag: CheckpointTag, write: (folder: string) => Promise<void>): Promise<void> {
    this.check();
    await replaceFolder(this.checkpointPath(tag), (temporary) => this.#checked(write, temporary));
  }

  /**
   * Writes `checkpoints/last` and keeps the ones before it.
   *
   * @param keep how many in all
   * @param before the step that the present `last` belongs to
   */
  async writeLast(keep: number, before: number, write: (folder: string) => Promise<void>): Promise<void> {
    this.check();
    const kept =
      keep > 1 && this.hasCheckpoint("last") ? join(this.path, "checkpoints", `step-${before}`) : null;
    const options = kept === null ? {} : { keepOldAs: kept };
    await replaceFolder(this.checkpointPath("last"), (temporary) => this.#checked(write, temporary), options);
    for (const step of this.keptSteps().slice(0, Math.max(0, this.keptSteps().length - (keep - 1)))) {
      rmSync(join(this.path, "checkpoints", `step-${step}`), { recursive: true, force: true });
    }
  }

  /** The steps of the checkpoints before the last that are kept, in ascending order. */
  keptSteps(): number[] {
    const names = readdirSync(join(this.path, "checkpoints"));
    return names
      .flatMap((name) => KEPT.exec(name)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }
}

/**
 * Puts right what processes that were killed while they replaced a checkpoint have left, and removes what they had
 * begun to write. Only for who holds the run's lock.
 */
export function recoverRunFolder(path: string): void {
  const checkpoints = join(path, "checkpoints");
  requireRegularFiles(path);
  if (existsSync(checkpoints)) requireRegularFiles(checkpoints);
  for (const tag of ["last", "best"] as const) recoverFolder(join(checkpoints, tag));
  const remove = (folder: string, left: RegExp) => {
    for (const name of existsSync(folder) ? readdirSync(folder) : []) {
      if (left.test(name)) rmSync(join(folder, name), { recursive: true, force: true });
    }
  };
  remove(checkpoints, LEFT_OF_CHECKPOINT);
  remove(checkpoints, LEFT_OF_FILE);
  remove(path, LEFT_OF_FILE);
}
