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
 * Writes a file so that, whenever the process or the machine stops, `path` holds either what it held before or
 * everything in `chunks`: the bytes go to a temporary file in the same folder, are forced to the disk, and the
 * file is renamed. An existing file is replaced; where `path` is a link, the file that it leads to. The temporary file
 * is removed when anything fails.
 *
 * @param chunks written one after the other; each may be made when it is asked for, so that the whole need not
 * be in memory
 * @throws UsageError, naming `path`, when the folder is missing, may not be written or the disk is full, or something
 * that is no regular file has that name
 */
export function writeFileAtomic(path: string, chunks: Iterable<string | Uint8Array>): void {
  checkReplaceableFile(path);
  const target = statSync(path, { throwIfNoEntry: false }) === undefined ? path : realpathSync(path);
  const folder = dirname(target);
  const unique = `${process.pid}-${randomBytes(4).toString("hex")}`;
  // Cut short, so that a long but legal name does not become too long by what is added to it.
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
 * Says, before any work, whether a file can be written under this name: devices, pipes and folders are not replaced.
 *
 * @throws UsageError that names what is there instead
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
    `${path}: cannot be written: it is ${kind}, and only regular files are replaced; choose another name`,
  );
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
