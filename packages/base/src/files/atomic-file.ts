import { randomBytes } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { UsageError } from "../errors.js";
import { diskError } from "./disk-error.js";
import { syncFolder } from "./sync-folder.js";

/**
 * Writes a file atomically: whenever the process or the machine stops, `path` contains either its old contents or all
 * of `chunks`. The bytes are written to a temporary file in the same folder, synced to disk, and the file is renamed.
 * An existing file is replaced; if `path` is a link, its target is. The temporary file is removed on failure.
 *
 * @param chunks written in order; may be generated lazily, so that the whole content need not be in memory
 * @throws UsageError, naming `path`, if the folder is missing or not writable, the disk is full, or `path` exists and
 * is not a regular file
 */
export function writeFileAtomic(path: string, chunks: Iterable<string | Uint8Array>): void {
  checkReplaceableFile(path);
  const target = statSync(path, { throwIfNoEntry: false }) === undefined ? path : realpathSync(path);
  const folder = dirname(target);
  const unique = `${process.pid}-${randomBytes(4).toString("hex")}`;
  // Truncated, so that the suffix does not make a long but valid name too long.
  const temporary = join(folder, `.${basename(target).slice(0, 40)}.${unique}.partial`);
  try {
    writeNewFile(temporary, chunks);
    renameSync(temporary, target);
    syncFolder(folder);
  } catch (error) {
    removeQuietly(temporary);
    throw diskError(path, error);
  }
}

/**
 * Checks before any work that a file can be written to this path: devices, pipes and folders are not replaced.
 *
 * @throws UsageError naming what exists there instead
 */
export function checkReplaceableFile(path: string): void {
  let stats: ReturnType<typeof statSync>;
  try {
    stats = statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    throw diskError(path, error);
  }
  if (stats === undefined || stats.isFile()) return;
  if (stats.isDirectory()) throw diskError(path, Object.assign(new Error("is a folder"), { code: "EISDIR" }));
  const kind = stats.isFIFO() ? "a pipe" : stats.isSocket() ? "a socket" : "a device";
  throw new UsageError(
    "not-a-file",
    `${path}: cannot be written: it is ${kind}, and only regular files are replaced; choose another name`,
  );
}

function writeNewFile(path: string, chunks: Iterable<string | Uint8Array>): void {
  const file = openSync(path, "wx");
  try {
    for (const chunk of chunks) {
      const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
      // One call may write fewer bytes than requested, especially just before the disk is full.
      for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done, bytes.length - done);
    }
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** The original error matters more than a temporary file that cannot be removed or never existed. */
function removeQuietly(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // The first error is thrown by the caller.
  }
}
