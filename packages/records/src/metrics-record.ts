import { z } from "zod";
import { finiteOrNull, linesParserOf, parserOf, RECORD_VERSION } from "./parse-record.js";

/** null means unknown: not measured, or not finite. */
export type MetricValue = number | string | boolean | null;

/** One training step: one line of metrics.jsonl. */
export interface MetricsRecord {
  /** Training step, from 1. */
  step: number;
  /** Mean loss over the step's items; null if it had none. */
  loss: number | null;
  /** Mean reward over turns that did not fail; null if all failed. */
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
 * The record of a step's values, with keys in output order: step, loss, reward/mean, the others by name, then times
 * (the only values that differ between two runs of one seed), then the version.
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

/** One line of JSON without a trailing newline. */
export function stringifyMetrics(values: Readonly<Record<string, MetricValue>> & { step: number }): string {
  return JSON.stringify(metricsRecord(values));
}

const WARNING = "warning/";

/** The key of a step that holds the warning of a rule: its text. */
export const warningKey = (rule: string): string => `${WARNING}${rule}`;

/** A warning of a training. */
export interface TrainingWarning {
  step: number;
  rule: string;
  text: string;
}

/** The warnings that the steps of a training recorded. */
export const warningsOf = (metrics: readonly MetricsRecord[]): TrainingWarning[] =>
  metrics.flatMap((record) =>
    Object.entries(record).flatMap(([key, text]) =>
      key.startsWith(WARNING) && typeof text === "string"
        ? [{ step: record.step, rule: key.slice(WARNING.length), text }]
        : [],
    ),
  );

/** @throws UsageError if the text or value is not a metrics record of a known version */
export const parseMetricsLine = parserOf(metricsRecordSchema, "metrics record");

/** Parses all lines of metrics.jsonl but for an unterminated last one. @throws UsageError for an invalid line */
export const parseMetricsLines = linesParserOf(parseMetricsLine, "metrics.jsonl", "a metrics record");
