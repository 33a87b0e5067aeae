import { createHash, type Hash } from "node:crypto";
import {
  closeSync,
  existsSync,
  fdatasync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  statSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { promisify } from "node:util";
import { diskError, explainDiskErrors, UsageError } from "@astra-rl/base";

/** What a checkpoint knows of a journal. */
export interface JournalState {
  bytes: number;
  /** Of these bytes. */
  sha256: string;
}

const PIECE = 1 << 20;

/** An append-only file of lines. A resumed run truncates it to the length in its checkpoint. */
export class Journal {
  #handle: number | null = null;
  /** Of all bytes; null until it is asked for, so that a long file is read once and not at each checkpoint. */
  #hash: Hash | null = null;

  constructor(readonly path: string) {}

  /** Size in bytes; 0 if the file does not exist. */
  get bytes(): number {
    if (this.#handle !== null) return fstatSync(this.#handle).size;
    return statSync(this.path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /**
   * Appends lines in one write; the first call creates the file. If the write fails, none of the lines stays in the
   * file.
   *
   * @param lines without their line breaks
   * @throws UsageError if the disk is full or read-only
   */
  append(lines: readonly string[]): void {
    if (lines.length === 0) return;
    const text = Buffer.from(lines.map((line) => `${line}\n`).join(""));
    explainDiskErrors(this.path, () => {
      const handle = (this.#handle ??= openSync(this.path, "a"));
      const before = fstatSync(handle).size;
      try {
        let done = writeSync(handle, text);
        // A short write means that the disk is almost full; the next write throws.
        while (done < text.length) done += writeSync(handle, text, done);
        this.#hash?.update(text);
      } catch (error) {
        if (fstatSync(handle).size > before) ftruncateSync(handle, before);
        throw error;
      }
    });
  }

  /** Waits until what was appended is on the disk. @throws UsageError if the disk is full or fails */
  async synchronize(): Promise<void> {
    if (this.#handle === null) return;
    await promisify(fdatasync)(this.#handle).catch((error: unknown) => {
      throw diskError(this.path, error);
    });
  }

  /** What was written so far, for a checkpoint. */
  state(): JournalState {
    const { bytes } = this;
    this.#hash ??= this.#hashOf(bytes);
    return { bytes, sha256: this.#hash.copy().digest("hex") };
  }

  /**
   * Truncates the file to the length in a checkpoint. This removes lines of later steps and a partial last line; the
   * resumed run writes them again.
   *
   * @throws UsageError if the file is shorter than the checkpoint says, if no line ends there, or if the lines before are others
   */
  cut(state: Pick<JournalState, "bytes"> & Partial<JournalState>): void {
    this.checkCut(state);
    this.#hash = null;
    if (existsSync(this.path)) explainDiskErrors(this.path, () => truncateSync(this.path, state.bytes));
  }

  /** Throws if `cut` would, and changes nothing. */
  checkCut({ bytes, sha256 }: Pick<JournalState, "bytes"> & Partial<JournalState>): void {
    const size = this.bytes;
    if (size < bytes) {
      throw new UsageError(
        "truncated-file",
        `${this.path}: must have at least the ${bytes} bytes that the checkpoint recorded, got ${size}; ` +
          `restore the file, or start a new run from the checkpoint's weights`,
      );
    }
    if (bytes > 0 && this.#byteAt(bytes - 1) !== 0x0a) {
      throw new UsageError(
        "changed-since-checkpoint",
        `${this.path}: was changed since the checkpoint, since no line ends at byte ${bytes}; restore the file`,
      );
    }
    if (sha256 !== undefined && this.#hashOf(bytes).digest("hex") !== sha256) {
      throw new UsageError(
        "changed-since-checkpoint",
        `${this.path}: was changed since the checkpoint: its first ${bytes} bytes are not what the run wrote; restore the file, ` +
          "or start a new run from the checkpoint's weights",
      );
    }
  }

  close(): void {
    if (this.#handle !== null) closeSync(this.#handle);
    this.#handle = null;
  }

  #hashOf(bytes: number): Hash {
    const hash = createHash("sha256");
    if (bytes === 0) return hash;
    const handle = openSync(this.path, "r");
    try {
      const piece = Buffer.allocUnsafe(Math.min(PIECE, bytes));
      for (let at = 0, count; at < bytes; at += count) {
        count = readSync(handle, piece, 0, Math.min(piece.length, bytes - at), at);
        if (count === 0) break;
        hash.update(piece.subarray(0, count));
      }
      return hash;
    } finally {
      closeSync(handle);
    }
  }

  #byteAt(position: number): number {
    const handle = openSync(this.path, "r");
    try {
      const byte = Buffer.alloc(1);
      readSync(handle, byte, 0, 1, position);
      return byte[0]!;
    } finally {
      closeSync(handle);
    }
  }
}
