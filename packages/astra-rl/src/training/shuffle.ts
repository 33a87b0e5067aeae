import { keyedUniform } from "@astra-rl/lm";
import type { DrawKey } from "../core/index.js";

/** A shuffled copy (Fisher and Yates) whose order is a function of the key and the number of values. */
export function shuffle<T>(values: readonly T[], key: DrawKey): T[] {
  const shuffled = [...values];
  for (let last = shuffled.length - 1; last > 0; last--) {
    const other = Math.floor(keyedUniform(key, last) * (last + 1));
    [shuffled[last], shuffled[other]] = [shuffled[other]!, shuffled[last]!];
  }
  return shuffled;
}
