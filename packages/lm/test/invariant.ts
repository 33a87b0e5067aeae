import type { Tensor } from "@astra-rl/torch";

/** Largest absolute difference of two tensors' elements; Infinity if either contains NaN. */
export function largestDifference(a: Tensor, b: Tensor): number {
  const left = Array.from(a.toTypedArray(), Number);
  const right = Array.from(b.toTypedArray(), Number);
  if (left.length !== right.length) return Infinity;
  return left.reduce((most, value, at) => {
    const difference = Math.abs(value - right[at]!);
    return Number.isNaN(difference) ? Infinity : Math.max(most, difference);
  }, 0);
}
