import {
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  statSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { explainDiskErrors, UsageError } from "@astra-rl/torch";

/** A file to which whole lines are only ever added, until a resumed run cuts it back to what its checkpoint knows. */
export class Journal {
  #handle: number | null = null;

  constructor(readonly path: string) {}

  /** Bytes of the file; 0 where there is none. */
  get bytes(): number {
    if (this.#handle !== null) return fstatSync(this.#handle).size;
    return statSync(this.path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /**
   * Adds lines, in one write; the file is made with the first. When they cannot be written whole, nothing of them
   * stays in the file.
   *
   * @param lines without their line breaks
   * @throws UsageError where the disk is full or may not be written
   */
  append(lines: readonly string[]): void {
    if (lines.length === 0) return;
    const text = Buffer.from(lines.map((line) => `${line}\n`).join(""));
    explainDiskErrors(this.path, () => {
      const handle = (this.#handle ??= openSync(this.path, "a"));
      const before = fstatSync(handle).size;
      try {
        let done = writeSync(handle, text);
        // Less than asked for: the disk is about to be full, and the next write says so.
        while (done < text.length) done += writeSync(handle, text, done);
      } catch (error) {
        if (fstatSync(handle).size > before) ftruncateSync(handle, before);
        throw error;
      }
    });
  }

  /**
   * Cuts the file to the lines that a checkpoint knows of; lines of later steps and a torn last line go, and the
   * resumed run writes them again.
   *
   * @throws UsageError when the file is shorter than the checkpoint says, or is not cut at a line's end there
   */
  cut(bytes: number): void {
    this.checkCut(bytes);
    if (existsSync(this.path)) explainDiskErrors(this.path, () => truncateSync(this.path, bytes));
  }

  /** Throws where `cut` would, and changes nothing. */
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
