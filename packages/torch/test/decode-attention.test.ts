import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  decodeAttention,
  noGrad,
  randn,
  scope,
  tensor,
  TorchError,
  type DType,
  type Tensor,
} from "../src/index.js";
import { expectClose } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const made = (dtype: DType, ...shape: number[]) => scope(() => randn(shape).to(dtype));
const bfloat16 = (...shape: number[]) => made("bfloat16", ...shape);
const wide = (value: Tensor) => value.to("float64");
const numbers = (value: Tensor) => value.toTypedArray() as Float32Array;

/** Half the distance of neighbouring bfloat16 numbers around 1, and what sums in another order may add. */
const ROUNDING = 2 ** -8 + 1e-4;

/** softmax(q kᵀ · scale + bias) v in float64, query by query as it is defined. */
function attentionByDefinition(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  bias: Tensor | null,
  scale: number,
): Float64Array {
  const [batch, heads, tokens, size] = query.shape as [number, number, number, number];
  const [, groups, columns] = key.shape as [number, number, number];
  const shared = heads / groups;
  const [q, k, v] = [query, key, value].map((each) =>
    wide(each).contiguous().toTypedArray(),
  ) as Float64Array[];
  const b = bias === null ? null : (wide(bias).contiguous().toTypedArray() as Float64Array);
  const result = new Float64Array(batch * tokens * heads * size);
  for (let row = 0; row < batch; row += 1) {
    for (let head = 0; head < heads; head += 1) {
      const group = Math.floor(head / shared);
      const from = (row * groups + group) * columns;
      for (let token = 0; token < tokens; token += 1) {
        const at = ((row * heads + head) * tokens + token) * size;
        const biasRow =
          bias === null
            ? 0
            : (bias.size(0) === 1 ? 0 : row * groups + group) * bias.size(1) +
              (bias.size(1) === 1 ? 0 : (head % shared) * tokens + token);
        const scores = Array.from({ length: columns }, (_, column) => {
          let dot = 0;
          for (let e = 0; e < size; e += 1) dot += q![at + e]! * k![(from + column) * size + e]!;
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
          result[((row * tokens + token) * heads + head) * size + e] = sum / total;
        }
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
        fc.oneof(fc.constant(1), fc.integer({ min: 2, max: 90 })),
        fc.integer({ min: 1, max: 40 }),
        fc.constantFrom(1, 2, 8, 16, 24, 64, 80, 128),
        fc.constantFrom("none", "one for all", "a row each", "a head each"),
        fc.constantFrom<DType>("bfloat16", "float32"),
        (batch, groups, shared, tokens, columns, size, kind, dtype) => {
          scope(() => {
            // The cache has room for more columns than are there; the query comes out of a fused projection.
            const [key, value] = [0, 1].map(() =>
              made(dtype, batch, groups, columns + 3, size).narrow(2, 0, columns),
            ) as [Tensor, Tensor];
            const query = made(dtype, batch, tokens, 2, groups * shared, size)
              .select(2, 1)
              .transpose(1, 2);
            const bias =
              kind === "none"
                ? null
                : made(
                    dtype,
                    kind === "one for all" ? 1 : batch * groups,
                    kind === "a head each" ? shared * tokens : 1,
                    columns,
                  );
            const got = decodeAttention(query, key, value, bias, 0.3);
            expect(got!.shape).toEqual([batch, tokens, groups * shared * size]);
            const tolerance = dtype === "float32" ? 2e-5 : ROUNDING;
            expectClose(numbers(got!), attentionByDefinition(query, key, value, bias, 0.3), tolerance);
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
        [bfloat16(2, 4, 0, 8), key, key, null],
        [wide(query), wide(key), wide(key), null],
        [query, key, key.to("float32"), null],
        [query.to("float32"), key, key, null],
        [query, bfloat16(2, 3, 5, 8), bfloat16(2, 3, 5, 8), null],
        [bfloat16(2, 0, 1, 8), key, key, null],
        [bfloat16(0, 4, 1, 8), key, key, null],
        [query, key, bfloat16(2, 4, 6, 8), null],
        [query, bfloat16(2, 4, 0, 8), bfloat16(2, 4, 0, 8), null],
        [query, bfloat16(2, 4, 8, 5).transpose(2, 3), key, null],
        [query, key, key, bfloat16(3, 1, 5)],
        [query, key, key, bfloat16(8, 1, 4)],
        [query, key, key, bfloat16(8, 1, 5).to("float32")],
        [bfloat16(2, 4, 2, 8), key, key, bfloat16(8, 3, 5)],
        [query, key, key, bfloat16(5)],
        [query.view([2, 4, 8]), key, key, null],
      ];
      for (const [q, k, v, bias] of refused) expect(decodeAttention(q, k, v, bias, 1)).toBeNull();
      const trained = query.clone().requiresGrad_();
      expect(decodeAttention(trained, key, key, null, 1)).toBeNull();
      expect(noGrad(() => decodeAttention(trained, key, key, null, 1))).not.toBeNull();
    });
  });

  /** A random family: how many rows descend from each node, and how many columns each generation adds. */
  interface Family {
    columns: number;
    children: Family[];
  }
  const family = fc.letrec<{ node: Family }>((tie) => ({
    node: fc.record({
      columns: fc.integer({ min: 0, max: 9 }),
      children: fc.oneof(
        { depthSize: "small" },
        fc.constant<Family[]>([]),
        fc.array(tie("node"), { minLength: 1, maxLength: 3 }),
      ),
    }),
  })).node;

  it("gives the same numbers, bit for bit, when told which columns rows share", () => {
    fc.assert(
      fc.property(
        fc.array(family, { minLength: 1, maxLength: 3 }),
        fc.constantFrom([1, 1], [2, 1], [1, 3], [2, 2]),
        fc.constantFrom(5, 16, 64, 128),
        fc.boolean(),
        fc.integer(),
        fc.constantFrom<DType>("bfloat16", "float32"),
        (families, [groups, shared], size, withBias, seed, dtype) => {
          // Leaves are rows; a node's columns, in blocks of four, are those of all its leaves.
          const leaves: [from: number, to: number, node: Family][][] = [];
          const pieces: number[][] = [];
          const walk = (node: Family, from: number, path: [number, number, Family][]): number => {
            const to = from + 4 * node.columns;
            const own = pieces.length;
            const first = leaves.length;
            const here: [number, number, Family][] = [...path, [from, to, node]];
            if (node.children.length === 0) {
              leaves.push(here);
              pieces.push([first, from, -1, first, 1]);
              return 1;
            }
            if (to > from) pieces.push([first, from, to, first, 0]);
            const count = node.children.reduce((sum, child) => sum + walk(child, to, here), 0);
            if (to > from) pieces[own]![4] = count;
            return count;
          };
          for (const each of families) walk(each, 0, []);
          const rows = leaves.length;
          const columns = 3 + Math.max(...leaves.map((path) => path.at(-1)![1]));
          // Where the rows lie is nobody's business: row `slots[i]` is leaf i.
          const slots = Array.from({ length: rows }, (_, at) => at);
          const shuffled = fc.sample(fc.shuffledSubarray(slots, { minLength: rows }), {
            numRuns: 1,
            seed,
          })[0]!;

          scope(() => {
            const query = made(dtype, rows, groups! * shared!, 1, size);
            const key = made(dtype, rows, groups!, columns, size);
            const value = made(dtype, rows, groups!, columns, size);
            const copied = new Map<Family, number>();
            leaves.forEach((path, leaf) => {
              for (const [from, to, node] of path.slice(0, -1)) {
                const source = copied.get(node) ?? shuffled[leaf]!;
                copied.set(node, source);
                for (const buffer of [key, value]) {
                  const part = buffer.narrow(2, from, to - from);
                  if (to > from) part.select(0, shuffled[leaf]!).copy_(part.select(0, source).clone());
                }
              }
            });
            const bias = withBias ? made(dtype, rows * groups!, 1, columns) : null;
            const sharing = {
              order: tensor(Int32Array.from(shuffled), { dtype: "int32" }),
              pieces: tensor(
                Int32Array.from(pieces.flatMap(([row, ...rest]) => [shuffled[row!]!, ...rest])),
                {
                  dtype: "int32",
                  shape: [pieces.length, 5],
                },
              ),
            };
            const apart = decodeAttention(query, key, value, bias, 0.3)!;
            const together = decodeAttention(query, key, value, bias, 0.3, sharing)!;
            expect(Array.from(numbers(together))).toEqual(Array.from(numbers(apart)));
          });
        },
      ),
      { numRuns: 100 },
    );
  });

  it("refuses pieces that do not tell every column of every row once", () => {
    scope(() => {
      const [query, key] = [bfloat16(3, 2, 1, 8), bfloat16(3, 2, 9, 8)];
      const attempt = (order: number[], pieces: number[][]) =>
        decodeAttention(query, key, key, null, 1, {
          order: tensor(Int32Array.from(order), { dtype: "int32" }),
          pieces: tensor(Int32Array.from(pieces.flat()), { dtype: "int32", shape: [pieces.length, 5] }),
        });
      const [shared, first, second] = [
        [0, 0, 4, 0, 2],
        [0, 4, -1, 0, 1],
        [1, 4, -1, 1, 1],
      ];
      const third = [2, 0, -1, 2, 1];
      expect(attempt([0, 1, 2], [shared!, first!, second!, third])).not.toBeNull();
      for (const [order, pieces] of [
        [
          [0, 1],
          [shared!, first!, second!],
        ],
        [
          [0, 1, 1],
          [shared!, first!, second!, third],
        ],
        [
          [0, 1, 3],
          [shared!, first!, second!, third],
        ],
        [
          [0, 1, 2],
          [shared!, first!, second!],
        ],
        [
          [0, 1, 2],
          [shared!, first!, third],
        ],
        [
          [0, 1, 2],
          [shared!, first!, first!, second!, third],
        ],
        [
          [0, 1, 2],
          [[0, 0, 5, 0, 2], [0, 5, -1, 0, 1], [1, 5, -1, 1, 1], third],
        ],
        [
          [0, 1, 2],
          [[3, 0, 4, 0, 2], first!, second!, third],
        ],
        [
          [0, 1, 2],
          [[0, 0, 4, 0, 4], first!, second!, third],
        ],
        [
          [0, 1, 2],
          [[0, 0, 12, 0, 2], third],
        ],
        [
          [0, 1, 2],
          [[0, 0, 4, -1, 2], first!, second!, third],
        ],
        [[0, 1, 2], [[-1, 0, -1, 0, 3]]],
      ] as [number[], number[][]][]) {
        expect(() => attempt(order, pieces)).toThrow(TorchError);
      }
      const order = tensor([0, 1, 2]);
      expect(() => decodeAttention(query, key, key, null, 1, { order, pieces: order })).toThrow(
        "order and pieces must be int32",
      );
      const indices = (values: number[], ...shape: number[]) =>
        tensor(Int32Array.from(values), { dtype: "int32", shape });
      const whole = { order: indices([0, 1, 2], 3), pieces: indices([0, 0, -1, 0, 3], 1, 5) };
      expect(decodeAttention(query, key, key, null, 1, whole)).not.toBeNull();
      expect(decodeAttention(bfloat16(3, 2, 2, 8), key, key, null, 1, whole)).toBeNull();
    });
  });
});
