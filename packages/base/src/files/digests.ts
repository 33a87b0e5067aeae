import { createHash } from "node:crypto";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describeValue, UsageError } from "../errors.js";
import { writeFileAtomic } from "./atomic-file.js";
import { checkRegular } from "./regular-file.js";

/** Checksums of a folder's files, recorded when they were written; compatible with `sha256sum --check`. */
export const DIGESTS = "SHA256SUMS";

const PIECE = 1 << 22;

/** Records the checksums of a folder's files. @param digests SHA-256 in hexadecimal, by file name */
export function writeDigests(folder: string, digests: ReadonlyMap<string, string>): void {
  const lines = [...digests].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, hash]) => `${hash}  ${name}\n`);
  writeFileAtomic(join(folder, DIGESTS), lines);
}

/** Adds checksums of further files to those recorded in a folder. */
export function addDigests(folder: string, digests: ReadonlyMap<string, string>): void {
  writeDigests(folder, new Map([...readDigests(join(folder, DIGESTS)), ...digests]));
}

/**
 * Verifies a file against the checksum in its folder, if there is one.
 *
 * @throws UsageError on a mismatch: without this check, a flipped bit in weights would silently change results
 */
export function checkDigest(path: string): void {
  const sums = join(dirname(path), DIGESTS);
  const expected = readDigests(sums).get(basename(path));
  if (expected === undefined) return;
  let found: string;
  try {
    found = fileDigest(path);
  } catch {
    return; // Reading the file later reports why it cannot be read.
  }
  if (found === expected) return;
  throw new UsageError(
    "checksum-mismatch",
    `${path}: does not match its recorded checksum (SHA-256 ${expected}, now ${found}): it was damaged or changed; restore ` +
      `it, or delete ${sums} to accept it`,
  );
}

/** Checksums by file name; empty if the file is missing. @throws UsageError if it is malformed */
function readDigests(sums: string): Map<string, string> {
  checkRegular(sums);
  let text: string;
  try {
    text = readFileSync(sums, "utf8");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT") return new Map();
    throw new UsageError("file-unreadable", `${sums}: cannot be read: ${(cause as Error).message}`, {
      cause,
    });
  }
  const digests = new Map<string, string>();
  for (const [index, line] of text.split("\n").entries()) {
    if (line === "") continue;
    const [, hash, file] = /^([0-9a-f]{64}) [ *](.+)$/u.exec(line) ?? [];
    // Ignoring malformed lines would skip their checks.
    if (hash === undefined || file === undefined) {
      throw new UsageError(
        "malformed-checksums",
        `${sums}:${index + 1}: must be a SHA-256 and the name of a file, as sha256sum writes them, got ` +
          `${describeValue(line)}; restore the file, or delete it to accept the files unchecked`,
      );
    }
    digests.set(file, hash);
  }
  return digests;
}

/** SHA-256 of a file in hexadecimal. @throws the system's error if it cannot be read */
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
