import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeAttention, noGrad, randn, scope, tensor, TorchError, type Tensor } from "../src/index.js";
import { expectClose } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const bfloat16 = (...shape: number[]) => scope(() => randn(shape).to("bfloat16"));
const wide = (value: Tensor) => value.to("float64");
const numbers = (value: Tensor) => value.toTypedArray() as Float32Array;

/** Half the distance of neighbouring bfloat16 numbers around 1, and what sums in another order may add. */
const ROUNDING = 2 ** -8 + 1e-4;

/** softmax(q kᵀ · scale + bias) v in float64, head by head as it is defined. */
function attentionByDefinition(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  bias: Tensor | null,
  scale: number,
): Float64Array {
  const [batch, heads, , size] = query.shape as [number, number, number, number];
  const [, groups, columns] = key.shape as [number, number, number];
  const shared = heads / groups;
  const [q, k, v] = [query, key, value].map((each) =>
    wide(each).contiguous().toTypedArray(),
  ) as Float64Array[];
  const b = bias === null ? null : (wide(bias).contiguous().toTypedArray() as Float64Array);
  const result = new Float64Array(batch * heads * size);
  for (let row = 0; row < batch; row += 1) {
    for (let head = 0; head < heads; head += 1) {
      const group = Math.floor(head / shared);
      const from = (row * groups + group) * columns;
      const biasRow =
        bias === null
          ? 0
          : (bias.size(0) === 1 ? 0 : row * groups + group) * bias.size(1) +
            (bias.size(1) === 1 ? 0 : head % shared);
      const scores = Array.from({ length: columns }, (_, column) => {
        let dot = 0;
        for (let e = 0; e < size; e += 1) {
          dot += q![(row * heads + head) * size + e]! * k![(from + column) * size + e]!;
        }
        return dot * scale + (b === null ? 0 : b[biasRow * columns + column]!);
      });
      const greatest = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - greatest));
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      for (let e = 0; e < size; e += 1) {
        let sum = 0;
        for (let column = 0; column < columns; column += 1) {
          sum += weights[column]! * v![(from + column) * size + e]!;
        }
        result[(row * heads + head) * size + e] = sum / total;
      }
    }
  }
  return result;
}

describe("decodeAttention", () => {
  it("is attention by hand: two keys, one of them twice as likely", () => {
    scope(() => {
      const query = tensor([1, 0], { dtype: "bfloat16" }).view([1, 1, 1, 2]);
      const key = tensor(
        [
          [0, 5],
          [Math.log(2), 5],
        ].flat(),
        { dtype: "bfloat16" },
      ).view([1, 1, 2, 2]);
      const value = tensor([3, 0, 0, 6], { dtype: "bfloat16" }).view([1, 1, 2, 2]);
      // Weights 1/3 and 2/3, up to the rounding of ln 2 to bfloat16.
      expectClose(numbers(decodeAttention(query, key, value, null, 1)!), [1, 4], 4e-3);
    });
  });

  it("is its definition for any shape, heads that share keys, caches with room, and every kind of bias", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 40 }),
        fc.constantFrom(1, 2, 8, 16, 24, 64, 80, 128),
        fc.constantFrom("none", "one for all", "a row each", "a head each"),
        (batch, groups, shared, columns, size, kind) => {
          scope(() => {
            // The cache has room for more columns than are there; the query comes out of a fused projection.
            const [key, value] = [0, 1].map(() =>
              bfloat16(batch, groups, columns + 3, size).narrow(2, 0, columns),
            ) as [Tensor, Tensor];
            const query = bfloat16(batch, 1, 2, groups * shared, size)
              .select(2, 1)
              .transpose(1, 2);
            const bias =
              kind === "none"
                ? null
                : bfloat16(
                    kind === "one for all" ? 1 : batch * groups,
                    kind === "a head each" ? shared : 1,
                    columns,
                  );
            const got = decodeAttention(query, key, value, bias, 0.3);
            expect(got!.shape).toEqual([batch, 1, groups * shared * size]);
            expectClose(numbers(got!), attentionByDefinition(query, key, value, bias, 0.3), ROUNDING);
          });
        },
      ),
      { numRuns: 200 },
    );
  });

  it("leaves out what a mask forbids, and stays finite where it forbids everything or scores are huge", () => {
    scope(() => {
      const query = bfloat16(1, 1, 1, 8);
      const key = bfloat16(1, 1, 3, 8);
      const value = tensor([Array(8).fill(1), Array(8).fill(50), Array(8).fill(3)].flat() as number[], {
        dtype: "bfloat16",
      }).view([1, 1, 3, 8]);
      const masked = (...allowed: boolean[]) =>
        tensor(
          allowed.map((may) => (may ? 0 : -1e30)),
          { dtype: "bfloat16" },
        ).view([1, 1, 3]);
      expect(new Set(numbers(decodeAttention(query, key, value, masked(true, false, false), 1)!))).toEqual(
        new Set([1]),
      );
      const nothing = numbers(decodeAttention(query, key, value, masked(false, false, false), 1)!);
      expectClose(nothing, Array(8).fill(18) as number[], ROUNDING);
      const huge = numbers(decodeAttention(query.mul(1e15), key.mul(1e15), value, null, 1)!);
      expect(huge.every((each) => [1, 50, 3].includes(each))).toBe(true);
    });
  });

  it("says so where it does not apply", () => {
    scope(() => {
      const [query, key] = [bfloat16(2, 4, 1, 8), bfloat16(2, 4, 5, 8)];
      expect(decodeAttention(query, key, key, null, 1)).not.toBeNull();
      const refused: [Tensor, Tensor, Tensor, Tensor | null][] = [
        [bfloat16(2, 4, 2, 8), key, key, null],
        [query.to("float32"), key.to("float32"), key.to("float32"), null],
        [query, key, key.to("float32"), null],
        [query, bfloat16(2, 3, 5, 8), bfloat16(2, 3, 5, 8), null],
        [bfloat16(2, 0, 1, 8), key, key, null],
        [bfloat16(0, 4, 1, 8), key, key, null],
        [query, key, bfloat16(2, 4, 6, 8), null],
        [query, bfloat16(2, 4, 0, 8), bfloat16(2, 4, 0, 8), null],
        [query, bfloat16(2, 4, 8, 5).transpose(2, 3), key, null],
        [query, key, key, bfloat16(3, 1, 5)],
        [query, key, key, bfloat16(8, 1, 4)],
        [query, key, key, bfloat16(5)],
        [query.view([2, 4, 8]), key, key, null],
      ];
      for (const [q, k, v, bias] of refused) expect(decodeAttention(q, k, v, bias, 1)).toBeNull();
      const trained = query.clone().requiresGrad_();
      expect(decodeAttention(trained, key, key, null, 1)).toBeNull();
      expect(noGrad(() => decodeAttention(trained, key, key, null, 1))).not.toBeNull();
    });
  });
});
