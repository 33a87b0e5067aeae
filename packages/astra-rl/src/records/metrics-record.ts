import { z } from "zod";
import { finiteOrNull, parseLines, parseRecord, RECORD_VERSION } from "./parse-record.js";

/** null stands for a number that is not known: nothing was measured, or it was not finite. */
export type MetricValue = number | string | boolean | null;

/** One training step: one line of metrics.jsonl. */
export interface MetricsRecord {
  /** Training step, from 1. */
  step: number;
  /** Mean loss over the step's items; null when the step had none. */
  loss: number | null;
  /** Mean reward over the turns that did not fail; null when all did. */
  "reward/mean": number | null;
  version: number;
  [key: string]: MetricValue;
}

export const metricsRecordSchema = z
  .object({
    step: z.int().nonnegative(),
    loss: z.number().nullable(),
    "reward/mean": z.number().nullable(),
    version: z.int().positive(),
  })
  .catchall(z.union([z.number(), z.string(), z.boolean(), z.null()])) as z.ZodType<MetricsRecord>;

const FIRST = ["step", "loss", "reward/mean"];

/**
 * The record of a step's values, with its keys in the order in which they are written: step, loss, reward/mean, the
 * others by name, then the times (the only values that differ between two runs of one seed), then the version.
 */
export function metricsRecord(
  values: Readonly<Record<string, MetricValue>> & { step: number },
): MetricsRecord {
  const others = Object.keys(values).filter((key) => !FIRST.includes(key) && key !== "version");
  const isTime = (key: string) => key.startsWith("time/");
  const order = [...FIRST, ...others.filter((key) => !isTime(key)).sort(), ...others.filter(isTime).sort()];
  const entries = order.map((key): [string, MetricValue] => {
    const value = values[key] ?? null;
    return [key, typeof value === "number" ? finiteOrNull(value) : value];
  });
  return Object.fromEntries([...entries, ["version", RECORD_VERSION]]) as unknown as MetricsRecord;
}

/** One line of JSON without a line break at its end. */
export function stringifyMetrics(values: Readonly<Record<string, MetricValue>> & { step: number }): string {
  return JSON.stringify(metricsRecord(values));
}

/** @throws UsageError when the text or value is no metrics record of a known version */
export function parseMetricsLine(source: unknown, where = "metrics record"): MetricsRecord {
  return parseRecord(metricsRecordSchema, where, source);
}

/**
 * All lines of a metrics.jsonl. A last line without its line break was torn by a crash and is left out.
 *
 * @throws UsageError for a line that is no metrics record, with its number
 */
export function parseMetricsLines(text: string, where = "metrics.jsonl"): MetricsRecord[] {
  return parseLines(text, where, "a metrics record", parseMetricsLine);
}
