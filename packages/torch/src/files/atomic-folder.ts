import { existsSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { explainDiskErrorsAsync } from "./disk-error.js";
import { syncFolder } from "./sync-folder.js";

const sibling = (folder: string, suffix: string) => join(dirname(folder), `.${basename(folder)}.${suffix}`);

export interface ReplaceFolderOptions {
  /** Where the folder that is replaced goes, instead of being deleted; on the same file system. */
  keepOldAs?: string;
}

/**
 * Replaces a whole folder: `write` fills a new one beside it, which then takes its place by a rename. A process that
 * is killed at any moment leaves the old folder or the new one, never a mixture; `recoverFolder` puts it in place.
 *
 * @param write is given the path of a folder that does not exist yet
 * @throws UsageError where the disk is full or may not be written; the old folder is then as it was
 */
export async function replaceFolder(
  path: string,
  write: (temporary: string) => Promise<void>,
  { keepOldAs }: ReplaceFolderOptions = {},
): Promise<void> {
  // A name like "." has no folder beside it.
  const folder = resolve(path);
  const temporary = sibling(folder, "writing");
  const old = sibling(folder, "old");
  await explainDiskErrorsAsync(path, async () => {
    rmSync(temporary, { recursive: true, force: true });
    try {
      await write(temporary);
      recoverFolder(folder);
      // A folder with files in it cannot be renamed over, so the old one has to step aside for a moment.
      if (existsSync(folder)) renameSync(folder, old);
      renameSync(temporary, folder);
      syncFolder(dirname(folder));
    } catch (error) {
      rmSync(temporary, { recursive: true, force: true });
      recoverFolder(folder);
      throw error;
    }
    if (keepOldAs !== undefined && existsSync(old)) {
      rmSync(keepOldAs, { recursive: true, force: true });
      renameSync(old, keepOldAs);
    }
    rmSync(old, { recursive: true, force: true });
  });
}

/** Completes or takes back a `replaceFolder` that was killed between its renames. */
export function recoverFolder(path: string): void {
  const folder = resolve(path);
  const old = sibling(folder, "old");
  if (!existsSync(old)) return;
  if (existsSync(folder)) rmSync(old, { recursive: true, force: true });
  else renameSync(old, folder);
}
