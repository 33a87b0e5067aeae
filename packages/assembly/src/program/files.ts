import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { makeFolder, writeFileAtomic } from "@astra-rl/base";
import { parseEvaluationRecord, type EvaluationRecord } from "@astra-rl/records";

/** Reads a file that `eval --output` wrote. @throws UsageError for anything else */
export const readEvaluation = (path: string): EvaluationRecord =>
  parseEvaluationRecord(readFileSync(path, "utf8"), path);

/** Writes a file that an option names, and makes its folder. */
export function writeResult(path: string, content: string | Uint8Array): void {
  makeFolder(dirname(resolve(path)));
  writeFileAtomic(path, [content]);
}
