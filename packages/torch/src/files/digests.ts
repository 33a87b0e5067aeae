import { createHash } from "node:crypto";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describeValue, UsageError } from "../errors.js";
import { writeFileAtomic } from "./atomic-file.js";
import { checkRegular } from "./regular-file.js";

/** The file of a folder that says what its files held when they were written; `sha256sum --check` reads it as well. */
export const DIGESTS = "SHA256SUMS";

const PIECE = 1 << 22;

/** Writes down what the files of a folder hold. @param digests SHA-256 in hexadecimal, by the file's name */
export function writeDigests(folder: string, digests: ReadonlyMap<string, string>): void {
  const lines = [...digests].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, hash]) => `${hash}  ${name}\n`);
  writeFileAtomic(join(folder, DIGESTS), lines);
}

/** Writes down what further files of a folder hold, beside what is written down of it. */
export function addDigests(folder: string, digests: ReadonlyMap<string, string>): void {
  writeDigests(folder, new Map([...readDigests(join(folder, DIGESTS)), ...digests]));
}

/**
 * Checks that a file holds what was written, where its folder says what that was.
 *
 * @throws UsageError where it does not: a flipped bit in weights gives other numbers, not an error
 */
export function checkDigest(path: string): void {
  const sums = join(dirname(path), DIGESTS);
  const expected = readDigests(sums).get(basename(path));
  if (expected === undefined) return;
  let found: string;
  try {
    found = fileDigest(path);
  } catch {
    return; // Whoever reads it says why it cannot be read.
  }
  if (found === expected) return;
  throw new UsageError(
    `${path}: is not what was written (SHA-256 ${expected}, now ${found}): it was damaged or changed since; restore ` +
      `it, or delete ${sums} to take it as it is`,
  );
}

/** By the file's name; empty where the folder says nothing. @throws UsageError for what is no such list */
function readDigests(sums: string): Map<string, string> {
  checkRegular(sums);
  let text: string;
  try {
    text = readFileSync(sums, "utf8");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return new Map();
    throw new UsageError(`${sums}: cannot be read: ${(cause as Error).message}`, { cause });
  }
  const digests = new Map<string, string>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line === "") continue;
    const [, hash, file] = /^([0-9a-f]{64}) [ *](.+)$/u.exec(line) ?? [];
    // What says nothing would check nothing.
    if (hash === undefined || file === undefined) {
      throw new UsageError(
        `${sums}:${index + 1}: must be a SHA-256 and the name of a file, as sha256sum writes them, got ` +
          `${describeValue(line)}; restore the file, or delete it to take what is there as it is`,
      );
    }
    digests.set(file, hash);
  }
  return digests;
}

/** SHA-256 of a file in hexadecimal. @throws the system's error where it cannot be read */
export function fileDigest(path: string): string {
  const hash = createHash("sha256");
  const piece = Buffer.allocUnsafe(PIECE);
  const file = openSync(path, "r");
  try {
    for (let count; (count = readSync(file, piece)) > 0;) hash.update(piece.subarray(0, count));
    return hash.digest("hex");
  } finally {
    closeSync(file);
  }
}
