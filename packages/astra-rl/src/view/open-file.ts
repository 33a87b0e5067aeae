import { openSync, statSync } from "node:fs";

/** A handle to read a file; null where there is none, and for a pipe, whose reader would wait for ever. */
export function openIfFile(path: string): number | null {
  try {
    return statSync(path).isFile() ? openSync(path, "r") : null;
  } catch {
    return null;
  }
}
