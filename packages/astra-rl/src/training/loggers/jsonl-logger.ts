import { existsSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { makeFolder } from "@astra-rl/torch";
import { z } from "zod";
import { defineKind } from "../../kinds/index.js";
import type { LoggedRun, LoggedValues, MetricsLogger } from "../../core/index.js";
import { parseOptions } from "../../options/index.js";
import { Journal } from "../../run/index.js";

const options = z.strictObject({
  file: z.string().min(1, "must be a path").meta({ path: "output" }).describe("Where the lines go"),
});

/**
 * A line of JSON for each step in a file of its own: for trainers without a run folder, or a second place beside it. A
 * resumed run takes away the lines of the steps that are computed again.
 */
export class JSONLinesLogger implements MetricsLogger {
  readonly name = "jsonl";
  readonly #journal: Journal;

  /** @throws UsageError for anything but a path */
  constructor(file: string) {
    parseOptions("JSONLinesLogger", options, { file });
    this.#journal = new Journal(file);
  }

  open({ nextStep }: LoggedRun): void {
    const { path } = this.#journal;
    makeFolder(dirname(path));
    if (existsSync(path)) this.#journal.cut(bytesBefore(readFileSync(path), nextStep));
  }

  log(step: number, values: LoggedValues): void {
    this.#journal.append([JSON.stringify({ ...values, step })]);
  }

  close(): void {
    this.#journal.close();
  }
}

/** Length of the whole lines before the first of that step or a later one, or that is none of ours. */
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
  summary: "A line of JSON for each step in a file of its own, beside metrics.jsonl of the run folder",
  schema: options,
  make: ({ file }) => new JSONLinesLogger(file),
});
