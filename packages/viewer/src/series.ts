import type { MetricsRecord } from "@astra-rl/records";

export type Values = (number | null)[];

/** The values of one key, step by step; null where it is not known. */
export function valuesOf(metrics: readonly MetricsRecord[], key: string): Values {
  return metrics.map((record) => {
    const value = record[key];
    return typeof value === "number" && Number.isFinite(value) ? value : null;
  });
}

export const hasValues = (values: Values) => values.some((value) => value !== null);

/** Means over windows around each place, of what is known there; null where nothing is. */
export function runningMean(values: Values, half: number): Values {
  return values.map((_, index) => {
    const known = values.slice(Math.max(0, index - half), index + half + 1).filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
  });
}

/** Half a window for so many steps: about a twentieth of them, so that single steps do not hide the course. */
export const halfWindow = (steps: number) => Math.min(25, Math.floor(steps / 20));
