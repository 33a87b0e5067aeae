import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { diskError } from "./disk-error.js";
import { syncFolder } from "./sync-folder.js";

/**
 * Writes a file so that, whenever the process or the machine stops, `path` holds either what it held before or
 * everything in `chunks`: the bytes go to a temporary file in the same folder, are forced to the disk, and the
 * file is renamed. An existing file is replaced. The temporary file is removed when anything fails.
 *
 * @param chunks written one after the other; each may be made when it is asked for, so that the whole need not
 * be in memory
 * @throws UsageError, naming `path`, when the folder is missing, may not be written or the disk is full
 */
export function writeFileAtomic(path: string, chunks: Iterable<string | Uint8Array>): void {
  const folder = dirname(path);
  const unique = `${process.pid}-${randomBytes(4).toString("hex")}`;
  // Cut short, so that a long but legal name does not become too long by what is added to it.
  const temporary = join(folder, `.${basename(path).slice(0, 40)}.${unique}.partial`);
  try {
    writeNewFile(temporary, chunks);
    renameSync(temporary, path);
    syncFolder(folder);
  } catch (error) {
    removeQuietly(temporary);
    throw diskError(path, error);
  }
}

function writeNewFile(path: string, chunks: Iterable<string | Uint8Array>): void {
  const file = openSync(path, "wx");
  try {
    for (const chunk of chunks) {
      const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
      // One call may write less than it was given, most of all shortly before the disk is full.
      for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done, bytes.length - done);
    }
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** What went wrong before this matters more than a file that cannot be removed, or never was there. */
function removeQuietly(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // The first error is thrown by the caller.
  }
}
