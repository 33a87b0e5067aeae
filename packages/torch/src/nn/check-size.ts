import { describeValue, UsageError } from "../errors.js";

/** @throws UsageError unless `value` is an integer ≥ 1. */
export function checkSize(where: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 1) {
    throw new UsageError(`${where}: must be a whole number ≥ 1, got ${describeValue(value)}`);
  }
}
