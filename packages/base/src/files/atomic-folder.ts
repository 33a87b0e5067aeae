import { existsSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { explainDiskErrorsAsync } from "./disk-error.js";
import { syncFolder } from "./sync-folder.js";

const sibling = (folder: string, suffix: string) => join(dirname(folder), `.${basename(folder)}.${suffix}`);

export interface ReplaceFolderOptions {
  /** Where to move the replaced folder instead of deleting it; must be on the same file system. */
  keepOldAs?: string;
}

/**
 * Replaces a folder atomically: `write` fills a new sibling folder, which is then renamed. A process killed at any time
 * leaves the old folder or the new one, never a mixture; `recoverFolder` puts it in place.
 *
 * @param write called with the path of a folder that does not exist yet
 * @throws UsageError if the disk is full or not writable; the old folder is then unchanged
 */
export async function replaceFolder(
  path: string,
  write: (temporary: string) => Promise<void>,
  { keepOldAs }: ReplaceFolderOptions = {},
): Promise<void> {
  // A path like "." has no sibling folder.
  const folder = resolve(path);
  const temporary = sibling(folder, "writing");
  const old = sibling(folder, "old");
  await explainDiskErrorsAsync(path, async () => {
    rmSync(temporary, { recursive: true, force: true });
    try {
      await write(temporary);
      recoverFolder(folder);
      // A rename cannot replace a non-empty folder, so the old one is first moved aside.
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

/** Completes or reverts a `replaceFolder` that was killed between its renames. */
export function recoverFolder(path: string): void {
  const folder = resolve(path);
  const old = sibling(folder, "old");
  if (!existsSync(old)) return;
  if (existsSync(folder)) rmSync(old, { recursive: true, force: true });
  else renameSync(old, folder);
}
