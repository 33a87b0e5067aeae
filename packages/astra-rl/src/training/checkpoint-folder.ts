import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { explainDiskErrorsAsync } from "./disk-error.js";

const sibling = (folder: string, suffix: string) => join(dirname(folder), `.${basename(folder)}.${suffix}`);

/**
 * Replaces a whole folder: `write` fills a new one beside it, which then takes its place by a rename. A process that
 * is killed at any moment leaves the old folder or the new one, never a mixture; `recoverFolder` puts it in place.
 *
 * @param write is given the path of a folder that does not exist yet
 * @throws UsageError where the disk is full or may not be written; the old folder is then as it was
 */
export async function replaceFolder(
  folder: string,
  write: (temporary: string) => Promise<void>,
): Promise<void> {
  const temporary = sibling(folder, "writing");
  const old = sibling(folder, "old");
  await explainDiskErrorsAsync(folder, async () => {
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
      throw error;
    }
    rmSync(old, { recursive: true, force: true });
  });
}

/** Completes or takes back a `replaceFolder` that was killed between its renames. */
export function recoverFolder(folder: string): void {
  const old = sibling(folder, "old");
  if (!existsSync(old)) return;
  if (existsSync(folder)) rmSync(old, { recursive: true, force: true });
  else renameSync(old, folder);
}

/** A rename survives a power cut only when its folder is on the disk; some network file systems cannot do that. */
function syncFolder(folder: string): void {
  const handle = openSync(folder, "r");
  try {
    fsyncSync(handle);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EINVAL") throw error;
  } finally {
    closeSync(handle);
  }
}
