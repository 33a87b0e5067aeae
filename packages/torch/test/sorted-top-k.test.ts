import fc from "fast-check";
import { expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { randn, scope, sortedTopK, tensor, zeros, type DType, type Tensor } from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const numbers = (of: Tensor) => Array.from(of.toTypedArray() as Float32Array, Number);

/** The definition: a stable sort of each row, with NaN first. */
function sorted(rows: readonly number[][], k: number): { values: number[]; indices: number[] } {
  const height = (value: number) => (Number.isNaN(value) ? Infinity : value);
  const isAbove = (a: number, b: number) =>
    Number(Number.isNaN(b)) - Number(Number.isNaN(a)) ||
    (height(b) > height(a) ? 1 : height(b) < height(a) ? -1 : 0);
  const order = rows.map((row) =>
    row
      .map((_, at) => at)
      .sort((a, b) => isAbove(row[a]!, row[b]!) || a - b)
      .slice(0, k),
  );
  return {
    values: order.flatMap((indices, row) => indices.map((at) => rows[row]![at]!)),
    indices: order.flat(),
  };
}

function check(input: Tensor, k: number): void {
  const rows = input.to("float64").toArray() as number[][];
  const { values, indices } = sortedTopK(input, k);
  const expected = sorted(rows, k);
  expect([values.dtype, values.shape]).toEqual([input.dtype, [rows.length, k]]);
  expect([indices.dtype, indices.shape]).toEqual(["int64", [rows.length, k]]);
  expect(numbers(indices)).toEqual(expected.indices);
  // Zeros are compared without their signs.
  expect(numbers(values).map((value) => value + 0)).toEqual(expected.values.map((value) => value + 0));
}

const special = fc.constantFrom(0, -0, 1, -1, Infinity, -Infinity, NaN, -NaN, 1e-40, -1e-40, 3e38);

it("equals a truncated stable sort of each row: any numbers, with many ties", () => {
  const row = (length: number) =>
    fc.array(fc.oneof(special, fc.integer({ min: -9, max: 9 })), { minLength: length, maxLength: length });
  const cases = fc
    .tuple(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 3 }))
    .chain(([length, rows]) =>
      fc.record({
        rows: fc.array(row(length), { minLength: rows, maxLength: rows }),
        k: fc.integer({ min: 1, max: length }),
        dtype: fc.constantFrom<DType>("float32", "bfloat16"),
      }),
    );
  fc.assert(
    fc.property(cases, ({ rows, k, dtype }) => {
      scope(() => check(tensor(rows, { dtype }), k));
    }),
    { numRuns: 300 },
  );
});

it.each(["float32", "bfloat16"] as const)("equals a stable sort of a whole vocabulary in %s", (dtype) => {
  for (const k of [1, 50, 512, 1000]) {
    scope(() => check(randn([5, 50_257]).mul(4).to(dtype), k));
    // Rows with gaps between them, and transposed ones.
    scope(() => check(randn([3, 5000]).to(dtype).narrow(1, 7, 4900), k));
    scope(() => check(randn([1000, 2]).to(dtype).t(), Math.min(k, 1000)));
  }
});

it("is the same in other types", () => {
  scope(() => {
    const rows = randn([4, 90]).to("float64");
    check(rows, 20);
  });
});

it("refuses mismatched arguments by name", () => {
  scope(() => {
    expect(() => sortedTopK(zeros([2, 3]), 4)).toThrow(new TorchError("sortedTopK: k must be 1 … 3, got 4"));
    expect(() => sortedTopK(zeros([2, 3]), 0)).toThrow(TorchError);
    expect(() => sortedTopK(zeros([3]), 1)).toThrow(/input must be float32\[rows, numbers\]/);
    expect(() => sortedTopK([1] as never, 1)).toThrow(/sortedTopK: input must be a Tensor/);
  });
});
