import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { makeFolder, writeFileAtomic } from "@astra-rl/torch";
import { parseEvaluationRecord, type EvaluationRecord } from "../records/index.js";

/** Reads a file that `eval --output` wrote. @throws UsageError for anything else */
export const readEvaluation = (path: string): EvaluationRecord =>
  parseEvaluationRecord(readFileSync(path, "utf8"), path);

/** Writes a file that an option names, and makes its folder. */
export function writeResult(path: string, content: string | Uint8Array): void {
  makeFolder(dirname(resolve(path)));
  writeFileAtomic(path, [content]);
}
