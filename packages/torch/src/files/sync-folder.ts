import { closeSync, fsyncSync, openSync } from "node:fs";

/** A rename survives a power cut only when its folder is on the disk; some network file systems cannot do that. */
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
