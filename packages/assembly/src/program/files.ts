import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { makeFolder, UsageError, writeFileAtomic } from "@astra-rl/base";
import { parseEvaluationRecord, type EvaluationRecord } from "@astra-rl/records";

/** Reads a file that `eval --output` wrote. @throws UsageError for anything else */
export const readEvaluation = (path: string): EvaluationRecord =>
  parseEvaluationRecord(readResult(path, "an evaluation, which eval --output writes"), path);

/**
 * Reads the text of a file that a command wrote.
 *
 * @param what the file, such as "an evaluation, which eval --output writes"
 * @throws UsageError for a folder, whose error of the system does not name it
 */
export function readResult(path: string, what: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EISDIR") throw cause;
    const found = readdirSync(path).filter((name) => /^evaluation.*\.json$/u.test(name));
    const example =
      found.length === 0 ? "" : `, such as ${found.map((name) => join(path, name)).join(" or ")}`;
    throw new UsageError("file-unreadable", `${path}: must be ${what}, got a folder; name a file${example}`, {
      cause,
    });
  }
}

/** Writes a file that an option names, and makes its folder. */
export function writeResult(path: string, content: string | Uint8Array): void {
  makeFolder(dirname(resolve(path)));
  writeFileAtomic(path, [content]);
}
