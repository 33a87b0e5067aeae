import { closeSync, fsyncSync, openSync } from "node:fs";

/**
 * Syncs a folder, without which a rename may not survive a power failure; some network file systems do not support it.
 */
export function syncFolder(folder: string): void {
  const handle = openSync(folder, "r");
  try {
    fsyncSync(handle);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EINVAL") throw error;
  } finally {
    closeSync(handle);
  }
}
