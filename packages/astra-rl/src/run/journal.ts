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
import { diskError, explainDiskErrors, UsageError } from "@astra-rl/torch";

/** An append-only file of lines. A resumed run truncates it to the length in its checkpoint. */
export class Journal {
  #handle: number | null = null;

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

  /**
   * Truncates the file to the length in a checkpoint. This removes lines of later steps and a partial last line; the
   * resumed run writes them again.
   *
   * @throws UsageError if the file is shorter than the checkpoint says, or if no line ends there
   */
  cut(bytes: number): void {
    this.checkCut(bytes);
    if (existsSync(this.path)) explainDiskErrors(this.path, () => truncateSync(this.path, bytes));
  }

  /** Throws if `cut` would, and changes nothing. */
  checkCut(bytes: number): void {
    const size = this.bytes;
    if (size < bytes) {
      throw new UsageError(
        `${this.path}: must have at least the ${bytes} bytes that the checkpoint knows of, got ${size}; ` +
          `restore the file, or start a new run from the checkpoint's weights`,
      );
    }
    if (bytes > 0 && this.#byteAt(bytes - 1) !== 0x0a) {
      throw new UsageError(
        `${this.path}: was changed since the checkpoint, since no line ends at byte ${bytes}; restore the file`,
      );
    }
  }

  close(): void {
    if (this.#handle !== null) closeSync(this.#handle);
    this.#handle = null;
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
