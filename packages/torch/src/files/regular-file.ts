import { lstatSync, readdirSync, statSync, type Stats } from "node:fs";
import { join } from "node:path";
import { UsageError } from "../errors.js";

/** What something is that is neither a file nor a folder; null for these. */
function strangeness(stats: Stats): string | null {
  if (stats.isFile() || stats.isDirectory()) return null;
  return stats.isFIFO() ? "a pipe" : stats.isSocket() ? "a socket" : "a device";
}

/**
 * Says, before anything is opened, that a folder holds files and folders alone: whoever opens a pipe waits for somebody at
 * its other end, and a link that leads nowhere looks as if nothing were there.
 *
 * @throws UsageError that names what is something else
 */
export function requireRegularFiles(folder: string): void {
  for (const name of readdirSync(folder)) checkRegular(join(folder, name));
}

/** The same of one file. Nothing is said where there is none. */
export function checkRegular(path: string): void {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) {
    if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return;
    throw new UsageError(`${path}: is a link that leads nowhere; restore what it led to, or delete it`);
  }
  const kind = strangeness(stats);
  if (kind !== null) throw new UsageError(`${path}: must be a file, got ${kind}`);
}
