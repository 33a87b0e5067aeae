import { expect } from "vitest";
import type { Tensor } from "../src/index.js";

/** The numbers of a tensor of any floating-point type, row by row. */
export const numbers = (value: Tensor) => Array.from(value.to("float64").toTypedArray() as Float64Array);

/**
 * Compares two equally long lists element by element: |got − expected| ≤ tolerance × max(1, |expected|).
 * Reports the worst element, which a plain list comparison would not show.
 */
export function expectClose(
  got: ArrayLike<number | bigint>,
  expected: ArrayLike<number | bigint>,
  tolerance: number,
): void {
  expect(got.length).toBe(expected.length);
  let worst = { index: -1, error: 0 };
  for (let index = 0; index < expected.length; index += 1) {
    const [a, b] = [Number(got[index]), Number(expected[index])];
    if (Object.is(a, b)) continue;
    const error = Math.abs(a - b) / Math.max(1, Math.abs(b));
    if (!(error <= worst.error)) worst = { index, error };
  }
  if (!(worst.error <= tolerance)) {
    const { index, error } = worst;
    expect.fail(
      `element ${index}: got ${got[index]}, expected ${expected[index]}, off by ${error} > ${tolerance}`,
    );
  }
}
