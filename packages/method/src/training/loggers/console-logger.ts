import { z } from "zod";
import { functionOption, parseOptions } from "@astra-rl/base";
import { defineKind } from "../../kinds/index.js";
import type { LoggedValues, MetricsLogger } from "./metrics-logger.js";

export interface ConsoleLoggerOptions {
  /** Prints every n-th step. Default 1. */
  every?: number;
  /** Metrics to print, in this order. Default: loss, mean reward and the share of harmful responses. */
  keys?: readonly string[];
  /** Where lines go. Default: standard error. */
  write?: (line: string) => void;
}

const options = z.strictObject({
  every: z.int().min(1).default(1).describe("Steps between two lines"),
  keys: z
    .array(z.string().min(1))
    .default(["loss", "reward/mean", "harm/response_rate"])
    .describe("Metrics to print, as keys of metrics.jsonl"),
});
const codeOptions = options.extend({ write: functionOption<(line: string) => void>().optional() });

/** Prints a line per step to standard error, for the logs of unattended jobs. */
export class ConsoleLogger implements MetricsLogger {
  readonly name = "console";
  readonly #options: Required<ConsoleLoggerOptions>;

  constructor(given: ConsoleLoggerOptions = {}) {
    const {
      every,
      keys,
      write = (line: string) => console.error(line),
    } = parseOptions("ConsoleLogger", codeOptions, given);
    this.#options = { every, keys, write };
  }

  open(): void {}

  log(step: number, values: LoggedValues): void {
    const { every, keys, write } = this.#options;
    if (step % every !== 0) return;
    const shown = keys.map((key) => `${key} ${show(values[key] ?? null)}`);
    write([`step ${step}`, ...shown].join("  "));
  }

  close(): void {}
}

function show(value: number | string | boolean | null): string {
  if (value === null) return "-";
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);
}

export const consoleKind = defineKind({
  role: "logger",
  name: "console",
  summary: "Prints a line per step on standard error",
  schema: options,
  make: (chosen) => new ConsoleLogger(chosen),
});
