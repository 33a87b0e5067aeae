import { lstatSync, readdirSync, statSync, type Stats } from "node:fs";
import { join } from "node:path";
import { UsageError } from "../errors.js";

/** Kind of an entry that is neither a file nor a folder; null for files and folders. */
function strangeness(stats: Stats): string | null {
  if (stats.isFile() || stats.isDirectory()) return null;
  return stats.isFIFO() ? "a pipe" : stats.isSocket() ? "a socket" : "a device";
}

/**
 * Checks, before opening anything, that a folder contains only files and folders: opening a pipe would block, and a
 * broken link would look like a missing file.
 *
 * @throws UsageError naming any other entry
 */
export function requireRegularFiles(folder: string): void {
  for (const name of readdirSync(folder)) checkRegular(join(folder, name));
}

/** The same check for one path. A missing file passes. */
export function checkRegular(path: string): void {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) {
    if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return;
    throw new UsageError("broken-link", `${path}: is a broken link; restore its target, or delete it`);
  }
  const kind = strangeness(stats);
  if (kind !== null) throw new UsageError("not-a-file", `${path}: must be a file, got ${kind}`);
}
