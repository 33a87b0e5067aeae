import { existsSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { makeFolder, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import { Journal } from "@astra-rl/records";
import { defineKind } from "../../kinds/index.js";
import type { LoggedRun, LoggedValues, MetricsLogger } from "./metrics-logger.js";

const options = z.strictObject({
  file: z.string().min(1, "must be a path").meta({ path: "output" }).describe("File to write to"),
});

/**
 * Writes a JSON line per step to a separate file, for trainers without a run folder or as a second copy. A resumed
 * run removes the lines of recomputed steps.
 */
export class JSONLinesLogger implements MetricsLogger {
  readonly name = "jsonl";
  readonly #journal: Journal;

  /** @throws UsageError if `file` is not a path */
  constructor(file: string) {
    parseOptions("JSONLinesLogger", options, { file });
    this.#journal = new Journal(file);
  }

  open({ nextStep }: LoggedRun): void {
    const { path } = this.#journal;
    makeFolder(dirname(path));
    if (existsSync(path)) this.#journal.cut({ bytes: bytesBefore(readFileSync(path), nextStep) });
  }

  log(step: number, values: LoggedValues): void {
    this.#journal.append([JSON.stringify({ ...values, step })]);
  }

  close(): void {
    this.#journal.close();
  }
}

/** Bytes of the complete lines before the first line with that step or a later one, or that is not a metrics line. */
function bytesBefore(content: Buffer, step: number): number {
  let kept = 0;
  for (let end = content.indexOf(10); end >= 0; end = content.indexOf(10, kept)) {
    if (stepOf(content.subarray(kept, end).toString()) >= step) break;
    kept = end + 1;
  }
  return kept;
}

function stepOf(line: string): number {
  try {
    const { step } = JSON.parse(line) as { step?: unknown };
    return typeof step === "number" ? step : Infinity;
  } catch {
    return Infinity;
  }
}

export const jsonLinesKind = defineKind({
  role: "logger",
  name: "jsonl",
  summary:
    "Writes a line of JSON per step to a separate file, in addition to metrics.jsonl of the run folder",
  schema: options,
  make: ({ file }) => new JSONLinesLogger(file),
});
