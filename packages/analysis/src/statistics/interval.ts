import { UsageError } from "@astra-rl/base";

/** An estimate with the ends of its interval. `lower` and `upper` are NaN-free; see each function for empty data. */
export interface Interval {
  estimate: number;
  lower: number;
  upper: number;
}

/** Checks and returns a confidence level, given as 0.95, not 95 or 0.05. */
export function requireConfidence(where: string, confidence: number): number {
  if (!(confidence > 0 && confidence < 1)) {
    throw new UsageError(
      "out-of-range",
      `${where}: confidence must lie between 0 and 1, such as 0.95, got ${confidence}`,
    );
  }
  return confidence;
}
