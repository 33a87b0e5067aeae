import type { MetricsRecord } from "@astra-rl/records";

export type Values = (number | null)[];

/** The values of one key, by step; null if unknown. */
export function valuesOf(metrics: readonly MetricsRecord[], key: string): Values {
  return metrics.map((record) => {
    const value = record[key];
    return typeof value === "number" && Number.isFinite(value) ? value : null;
  });
}

export const hasValues = (values: Values) => values.some((value) => value !== null);

/** Means of known values over windows around each position; null if there are none. */
export function runningMean(values: Values, half: number): Values {
  return values.map((_, index) => {
    const known = values.slice(Math.max(0, index - half), index + half + 1).filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
  });
}

/** Half a window for this many steps: about a twentieth of them, so that single steps do not hide the trend. */
export const halfWindow = (steps: number) => Math.min(25, Math.floor(steps / 20));
