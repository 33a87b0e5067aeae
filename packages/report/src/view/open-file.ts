import { closeSync, constants, fstatSync, lstatSync, openSync, readSync } from "node:fs";
import { join } from "node:path";

/**
 * A handle to read a file; null for a missing file, for a pipe, which would block forever, and for a link, which may
 * lead out of the viewed folder.
 */
export function openIfFile(path: string): number | null {
  try {
    return lstatSync(path).isFile() ? openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW) : null;
  } catch {
    return null;
  }
}

/** Changes when a file is written or replaced; "-" for anything but a file. */
export function stampOf(path: string): string {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats?.isFile() === true ? `${stats.ino}:${stats.size}:${stats.mtimeMs}` : "-";
}

/** Stamps of several files of a folder. */
export const stampsIn = (folder: string, names: readonly string[]): string =>
  names.map((name) => stampOf(join(folder, name))).join(" ");

const CHUNK = 1 << 20;
/** Bytes before the end that must be unchanged when a file has grown. */
const SEAM = 64;
/** Maximum bytes of a line; no record is as long. */
export const LONGEST_LINE = 1 << 26;

/** A growing file of lines that a resumed run may truncate. */
export class GrowingFile {
  #end = 0;
  /** Whether `#end` lies within a line that is too long to store. */
  #isSkipping = false;
  #inode = -1;
  #seam = Buffer.alloc(0);

  /** @param mostAtOnce maximum bytes per `read`; at least those of the longest line. Default: all */
  constructor(
    readonly path: string,
    readonly mostAtOnce = Infinity,
  ) {}

  /**
   * Reads new lines.
   *
   * @param onLine called with each complete line and its end; "" for a line that is too long
   * @param onReset called first if the file was replaced or truncated, so that lines read earlier are invalid
   */
  read(onLine: (line: string, end: number) => void, onReset: () => void): void {
    const handle = openIfFile(this.path);
    try {
      const { size, ino } = handle === null ? { size: 0, ino: -1 } : fstatSync(handle);
      if (this.#end > 0 && (ino !== this.#inode || size < this.#end || !this.#isSame(handle!))) {
        this.#end = 0;
        this.#seam = Buffer.alloc(0);
        this.#isSkipping = false;
        onReset();
      }
      this.#inode = ino;
      if (handle !== null) this.#readOn(handle, size, onLine);
    } finally {
      if (handle !== null) closeSync(handle);
    }
  }

  #isSame(handle: number): boolean {
    const found = Buffer.alloc(this.#seam.length);
    readSync(handle, found, 0, found.length, this.#end - found.length);
    return found.equals(this.#seam);
  }

  #readOn(handle: number, size: number, onLine: (line: string, end: number) => void): void {
    let from = this.#end;
    const until = Math.min(size, from + this.mostAtOnce);
    // One buffer for the whole file: buffers of chunks would accumulate outside of the heap.
    let buffer = Buffer.alloc(Math.min(CHUNK, Math.max(1, until - from)));
    let filled = 0;
    while (from < until) {
      const count = readSync(handle, buffer, filled, Math.min(buffer.length - filled, until - from), from);
      if (count === 0) break;
      from += count;
      filled += count;
      let start = 0;
      const known = buffer.subarray(0, filled);
      for (let end = known.indexOf(10); end >= 0; end = known.indexOf(10, start)) {
        this.#pass(known.subarray(start, end + 1));
        onLine(this.#isSkipping ? "" : known.toString("utf8", start, end), this.#end);
        this.#isSkipping = false;
        start = end + 1;
      }
      buffer.copyWithin(0, start, filled);
      filled -= start;
      if (filled > 0 && (this.#isSkipping || filled >= LONGEST_LINE)) {
        this.#pass(buffer.subarray(0, filled));
        this.#isSkipping = true;
        filled = 0;
      } else if (filled === buffer.length) buffer = Buffer.concat([buffer], 2 * buffer.length);
    }
  }

  /** Marks these bytes as read. */
  #pass(bytes: Buffer): void {
    this.#end += bytes.length;
    this.#seam = Buffer.from(bytes.subarray(Math.max(0, bytes.length - SEAM)));
  }
}
