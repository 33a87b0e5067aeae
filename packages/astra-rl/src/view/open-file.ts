import { closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";
import { join } from "node:path";

/** A handle to read a file; null where there is none, and for a pipe, whose reader would wait for ever. */
export function openIfFile(path: string): number | null {
  try {
    return statSync(path).isFile() ? openSync(path, "r") : null;
  } catch {
    return null;
  }
}

/** Changes where a file is written or replaced; "-" for what is no file. */
export function stampOf(path: string): string {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats?.isFile() === true ? `${stats.ino}:${stats.size}:${stats.mtimeMs}` : "-";
}

/** Stamps of several files of a folder. */
export const stampsIn = (folder: string, names: readonly string[]): string =>
  names.map((name) => stampOf(join(folder, name))).join(" ");

const CHUNK = 1 << 20;
/** Bytes before the end that must not have changed when a file has grown. */
const SEAM = 64;

/** A file of lines that grows, and that a resumed run may cut. */
export class GrowingFile {
  #end = 0;
  #inode = -1;
  #seam = Buffer.alloc(0);

  constructor(readonly path: string) {}

  /**
   * Reads what was added.
   *
   * @param onLine called with each complete line, and where it ends
   * @param onReset called before, where the file was replaced or cut, so that lines read earlier are invalid
   */
  read(onLine: (line: string, end: number) => void, onReset: () => void): void {
    const handle = openIfFile(this.path);
    try {
      const { size, ino } = handle === null ? { size: 0, ino: -1 } : fstatSync(handle);
      if (this.#end > 0 && (ino !== this.#inode || size < this.#end || !this.#isSame(handle!))) {
        this.#end = 0;
        this.#seam = Buffer.alloc(0);
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
    // One buffer for the whole file: buffers of chunks would pile up outside of the heap.
    let buffer = Buffer.alloc(Math.min(CHUNK, Math.max(1, size - from)));
    let filled = 0;
    while (from < size) {
      const count = readSync(handle, buffer, filled, Math.min(buffer.length - filled, size - from), from);
      if (count === 0) break;
      from += count;
      filled += count;
      let start = 0;
      const known = buffer.subarray(0, filled);
      for (let end = known.indexOf(10); end >= 0; end = known.indexOf(10, start)) {
        this.#end += end + 1 - start;
        onLine(known.toString("utf8", start, end), this.#end);
        this.#seam = Buffer.from(known.subarray(Math.max(start, end + 1 - SEAM), end + 1));
        start = end + 1;
      }
      buffer.copyWithin(0, start, filled);
      filled -= start;
      if (filled === buffer.length) buffer = Buffer.concat([buffer], 2 * buffer.length);
    }
  }
}
