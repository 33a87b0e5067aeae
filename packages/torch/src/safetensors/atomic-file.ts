import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { AstraError, UsageError } from "../errors.js";

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
    throw explain(path, error);
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

/** A rename is on the disk only when its folder is. */
function syncFolder(folder: string): void {
  const handle = openSync(folder, "r");
  try {
    fsyncSync(handle);
  } catch (error) {
    // Some network file systems cannot do this; the file itself is complete and in its place.
    if ((error as NodeJS.ErrnoException).code !== "EINVAL") throw error;
  } finally {
    closeSync(handle);
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

const remedies: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full; free some space or choose another folder",
  EDQUOT: "the disk quota is used up; free some space or choose another folder",
  EFBIG: "the file would be larger than the file system or the process limit allows; choose another folder",
  EROFS: "the file system is read-only; choose another folder",
  EACCES: "the folder may not be written; change its permissions or choose another one",
  EPERM: "the folder may not be written; change its permissions or choose another one",
  ENOENT: "the folder does not exist; create it first",
  ENOTDIR: "a part of the path is a file, not a folder",
  EISDIR: "there is a folder of that name; choose another name",
  ENAMETOOLONG: "the name is too long for the file system; choose a shorter one",
};

function explain(path: string, error: unknown): unknown {
  if (error instanceof AstraError) return error;
  const code = (error as NodeJS.ErrnoException).code ?? "";
  const remedy = remedies[code];
  if (remedy === undefined) return error;
  return new UsageError(`${path}: cannot be written: ${remedy} (${code})`, { cause: error });
}
