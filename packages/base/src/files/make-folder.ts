import { existsSync, mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { explainDiskErrors } from "./disk-error.js";

/**
 * Creates a folder and its missing parents, one by one: Node's `recursive` option hangs on file systems that allow no
 * new folders (/proc).
 *
 * @throws UsageError, naming the folder that cannot be created
 */
export function makeFolder(path: string): void {
  if (existsSync(path)) return;
  const parent = dirname(resolve(path));
  if (parent !== resolve(path)) makeFolder(parent);
  explainDiskErrors(path, () => mkdirSync(path));
}
