import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/** SHA-256 of a text or of bytes, in hex. */
export const hash = (content) => createHash("sha256").update(content).digest("hex");

/**
 * SHA-256 over the paths and contents of files and folders (recursive). Contents rather than modification times,
 * because a checkout touches every file and must not cause a rebuild. A path that does not exist counts as absent.
 *
 * @param {readonly string[]} paths absolute
 * @param {(path: string) => boolean} wanted which files count
 */
export function fingerprint(paths, wanted = () => true) {
  const digest = createHash("sha256");
  const visit = (path) => {
    if (!existsSync(path)) {
      digest.update(`absent ${path}\0`);
    } else if (statSync(path).isDirectory()) {
      for (const name of readdirSync(path).sort()) visit(join(path, name));
    } else if (wanted(path)) {
      digest.update(`${path}\0`).update(readFileSync(path)).update("\0");
    }
  };
  for (const path of paths) visit(path);
  return digest.digest("hex");
}
