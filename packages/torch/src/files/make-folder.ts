import { existsSync, mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { explainDiskErrors } from "./disk-error.js";

/**
 * Makes a folder and those above it that are missing, one by one: Node's own `recursive` never ends where a file system
 * takes no new folders (/proc).
 *
 * @throws UsageError, naming the folder that cannot be made
 */
export function makeFolder(path: string): void {
  if (existsSync(path)) return;
  const parent = dirname(resolve(path));
  if (parent !== resolve(path)) makeFolder(parent);
  explainDiskErrors(path, () => mkdirSync(path));
}
