import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { AstraError, UsageError } from "@astra-rl/torch";
import { stringifyMetrics, type MetricsRecord } from "../records/index.js";
import { recoverFolder, replaceFolder } from "./checkpoint-folder.js";
import { explainDiskErrors } from "./disk-error.js";

/** A checkpoint's name in `checkpoints/`. */
export type CheckpointTag = "last" | "best";

/**
 * The folder of one run: `metrics.jsonl`, to which lines are only ever added, and `checkpoints/last` and `/best`.
 *
 * Opening takes it; `close` lets go of the file handle.
 */
export class RunDirectory {
  readonly metricsPath: string;
  #metrics: number | null = null;

  constructor(readonly path: string) {
    this.metricsPath = join(path, "metrics.jsonl");
  }

  /**
   * Makes the folders and checks that they can be written, before anything is computed.
   *
   * @throws UsageError when they cannot, or the folder holds a run already and `resume` is false
   */
  open({ resume }: { resume: boolean }): void {
    explainDiskErrors(this.path, () => {
      mkdirSync(join(this.path, "checkpoints"), { recursive: true });
      if (!resume && existsSync(this.metricsPath) && statSync(this.metricsPath).size > 0) {
        throw new UsageError(
          `${this.path}: holds the metrics of another run; resume that run, or choose another folder`,
        );
      }
      for (const tag of ["last", "best"] as const) recoverFolder(this.checkpointPath(tag));
      // A folder may exist and still refuse new files, or be on a full disk; better to hear of it now.
      const probe = join(this.path, "checkpoints", ".probe");
      const handle = openSync(probe, "w");
      try {
        writeSync(handle, "probe");
      } finally {
        closeSync(handle);
        rmSync(probe, { force: true });
      }
      this.#metrics = openSync(this.metricsPath, "a");
    });
  }

  close(): void {
    if (this.#metrics !== null) closeSync(this.#metrics);
    this.#metrics = null;
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
    await replaceFolder(this.checkpointPath(tag), write);
  }

  /** Bytes of metrics.jsonl. */
  get metricsBytes(): number {
    return fstatSync(this.#handle).size;
  }

  /**
   * Adds one line, in one write. When it cannot be written whole, nothing of it stays in the file.
   *
   * @throws UsageError where the disk is full or may not be written
   */
  appendMetrics(record: MetricsRecord): void {
    const line = Buffer.from(`${stringifyMetrics(record)}\n`);
    const handle = this.#handle;
    const before = fstatSync(handle).size;
    explainDiskErrors(this.metricsPath, () => {
      try {
        let done = writeSync(handle, line);
        // Less than asked for: the disk is about to be full, and the next write says so.
        while (done < line.length) done += writeSync(handle, line, done);
      } catch (error) {
        if (fstatSync(handle).size > before) ftruncateSync(handle, before);
        throw error;
      }
    });
  }

  /**
   * Cuts metrics.jsonl to the lines that a checkpoint knows of; lines of later steps and a torn last line go, and
   * the resumed run writes them again.
   *
   * @throws UsageError when the file is shorter than the checkpoint says, or is not cut at a line's end there
   */
  cutMetrics(bytes: number): void {
    const size = this.metricsBytes;
    if (size < bytes) {
      throw new UsageError(
        `${this.metricsPath}: must have at least the ${bytes} bytes that the checkpoint knows of, got ${size}; ` +
          `restore the file, or start a new run from the checkpoint's weights`,
      );
    }
    if (bytes > 0 && readFileSync(this.metricsPath)[bytes - 1] !== 0x0a) {
      throw new UsageError(
        `${this.metricsPath}: was changed since the checkpoint, since no line ends at byte ${bytes}; restore the file`,
      );
    }
    explainDiskErrors(this.metricsPath, () => truncateSync(this.metricsPath, bytes));
  }

  get #handle(): number {
    if (this.#metrics === null) throw new AstraError("internal: the run directory is not open");
    return this.#metrics;
  }
}
