import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { AstraError, TorchError } from "@astra-rl/base";
import {
  cat,
  full,
  fusedAttention,
  manualSeed,
  maxMemoryAllocated,
  memoryAllocated,
  noGrad,
  ones,
  rand,
  randn,
  resetPeakMemoryStats,
  scope,
  setThreads,
  tensor,
  threads,
  zeros,
  type Tensor,
} from "../src/index.js";
import { addon } from "../src/native.js";
import { expectNoLeaks } from "./live-tensors.js";
import { mayUseTiles } from "./tiles.js";

expectNoLeaks();

const startThreads = threads();
afterAll(() => setThreads(startThreads));

const wide = (value: Tensor) => value.detach().to("float64");
type Numbers = Float32Array | Float64Array;
const elements = (value: Tensor) => value.detach().contiguous().toTypedArray() as Numbers;
const numbers = (value: Tensor): number[] => Array.from(elements(value));

/** As `toEqual` of arrays, which compares a million numbers in seconds. */
function expectSame(actual: Numbers, expected: Numbers): void {
  let isSame = actual.length === expected.length;
  for (let at = 0; isSame && at < actual.length; at += 1) isSame = Object.is(actual[at], expected[at]);
  if (!isSame) expect([...actual]).toEqual([...expected]);
}

/** softmax(q kᵀ · scale + bias) v with plain operators, in the type of its arguments. */
function plainly(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | null, scale: number): Tensor {
  const [batch, heads, queries, size] = query.shape as [number, number, number, number];
  const [, groups, columns] = key.shape as [number, number, number];
  const q = query.reshape([batch * groups, (heads / groups) * queries, size]);
  const products = q.bmm(key.reshape([batch * groups, columns, size]).transpose(1, 2)).mul(scale);
  return (bias === null ? products : products.add(bias))
    .softmax(-1)
    .bmm(value.reshape([batch * groups, columns, size]))
    .view([batch, heads, queries, size])
    .transpose(1, 2)
    .reshape([batch, queries, heads * size]);
}

/** The result, and the gradients of query, key and value for a gradient of the result. */
function results(
  attend: typeof plainly,
  inputs: readonly [Tensor, Tensor, Tensor],
  bias: Tensor | null,
  scale: number,
  arriving: Tensor,
): [Tensor, Tensor, Tensor, Tensor] {
  const [q, k, v] = inputs.map((input) => input.detach().requiresGrad_()) as [Tensor, Tensor, Tensor];
  const result = attend(q, k, v, bias, scale);
  result.backward(arriving);
  return [result.detach(), q.grad!, k.grad!, v.grad!];
}

const fused: typeof plainly = (query, key, value, bias, scale) =>
  fusedAttention(query, key, value, bias === null ? [] : [bias], scale)!;

const FORBIDDEN = -1e30;
/** The bfloat16 number next to −1e29: not masking by definition, but giving no weight. */
const ALMOST = -0.995e29;

interface Case {
  batch: number;
  groups: number;
  shared: number;
  queries: number;
  columns: number;
  size: number;
  bias: string;
  layout: string;
  seed: number;
}

const types: ("float32" | "bfloat16")[] = mayUseTiles ? ["float32", "bfloat16"] : ["float32"];

describe.each(types)("fusedAttention of %s", (dtype) => {
  const isWide = dtype === "float32";
  const other = isWide ? "float64" : "float32";
  const [unit, lost] = isWide ? [2 ** -18, 2 ** -16] : [2 ** -7, 2 ** -8];
  /** A head size, and one beyond the maximum. */
  const [least, beyond] = isWide ? [16, 272] : [8, 257];
  const given = (...shape: number[]) => scope(() => randn(shape).to(dtype));

  /**
   * Weights, their gradients and the results are rounded to bfloat16 once, by half of 2⁻⁸ relative; the mean computed
   * from the rounded output adds some more. All numbers are of size 1. In float32: the rounding error of sums of as
   * many numbers as there are queries or columns.
   */
  function expectNear(got: Tensor, expected: Tensor, what: string): void {
    expect(got.shape, what).toEqual(expected.shape);
    const [a, b] = [elements(got), elements(expected)];
    let [greatest, worst] = [0, 0];
    for (let at = 0; at < b.length; at += 1) {
      const [value, each] = [a[at]!, b[at]!];
      greatest = Math.max(greatest, Math.abs(each));
      worst = Math.max(worst, Number.isFinite(value) ? Math.abs(value - each) : Infinity);
    }
    expect(worst, `${what}: greatest ${greatest}`).toBeLessThanOrEqual(unit * greatest + lost);
  }

  const biases = {
    none: () => null,
    "one row": ({ columns }) => mask(1, 1, columns),
    "a row each": ({ batch, groups, columns }) => mask(batch * groups, 1, columns),
    "one for all": ({ shared, queries, columns }) => mask(1, shared * queries, columns),
    "one each": ({ batch, groups, shared, queries, columns }) =>
      mask(batch * groups, shared * queries, columns),
    causal: ({ shared, queries, columns }) =>
      full([queries, columns], FORBIDDEN)
        .triu(columns - queries + 1)
        .to(dtype)
        .repeat([1, shared, 1]),
    "any numbers": ({ batch, groups, shared, queries, columns }) =>
      given(batch * groups, shared * queries, columns),
  } satisfies Record<string, (shape: Case) => Tensor | null>;

  /** In each row from very few to nearly all columns are allowed, never none, in runs that mask whole blocks. */
  function mask(lines: number, rows: number, columns: number): Tensor {
    const runs = Math.ceil(columns / 24);
    const chosen = rand([lines, rows, runs])
      .lt(rand([lines, rows, 1]))
      .unsqueeze(-1)
      .expand([lines, rows, runs, 24])
      .reshape([lines, rows, runs * 24])
      .narrow(2, 0, columns);
    const forbidden = chosen.logicalAnd(rand([lines, rows, columns]).lt(0.9)).logicalNot();
    const greatest = rand([lines, rows, columns]);
    const last = greatest.lt(greatest.amax([-1], true)); // false at one column
    return full([lines, rows, columns], 0).maskedFill(forbidden.logicalAnd(last), FORBIDDEN).to(dtype);
  }

  const length = fc.oneof(fc.integer({ min: 1, max: 110 }), fc.constantFrom(1, 16, 31, 32, 33, 64, 300));
  const anyCase: fc.Arbitrary<Case> = fc
    .record({
      batch: fc.integer({ min: 1, max: 3 }),
      groups: fc.integer({ min: 1, max: 3 }),
      shared: fc.integer({ min: 1, max: 3 }),
      queries: length,
      cached: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 90 })),
      size: fc.constantFrom(...(isWide ? [16, 48, 256] : [5, 8, 16, 24, 256]), 32, 64, 64, 80, 96, 128, 128),
      bias: fc.constantFrom(...Object.keys(biases)),
      layout: fc.constantFrom("contiguous", "one projection", "cache"),
      seed: fc.nat(),
    })
    .map(({ cached, ...rest }) => ({ ...rest, columns: rest.queries + cached }));

  /** Layouts as in models: contiguous, from a projection [B, T, 3·H·E], or the filled part of a cache. */
  function inputsOf({
    batch,
    groups,
    shared,
    queries,
    columns,
    size,
    layout,
    seed,
  }: Case): [Tensor, Tensor, Tensor] {
    manualSeed(seed);
    const heads = groups * shared;
    if (layout === "contiguous") {
      const of = (count: number, rows: number) => given(batch, count, rows, size);
      return [of(heads, queries), of(groups, columns), of(groups, columns)];
    }
    const query = given(batch, queries, 3, heads, size).select(2, 1).transpose(1, 2);
    const key =
      layout === "cache"
        ? given(batch, groups, columns + 5, size).narrow(2, 0, columns)
        : given(batch, columns, 3, groups, size).select(2, 2).transpose(1, 2);
    return [
      query,
      key,
      given(batch + 1, groups, columns + 2, size)
        .narrow(0, 1, batch)
        .narrow(2, 2, columns),
    ];
  }

  function check(shape: Case): void {
    scope(() => {
      const { batch, groups, shared, queries, size } = shape;
      const inputs = inputsOf(shape);
      const bias = biases[shape.bias as keyof typeof biases](shape);
      const arriving = given(batch, queries, groups * shared * size);
      const scale = 1 / Math.sqrt(size);
      const got = results(fused, inputs, bias, scale, arriving);
      const exact = inputs.map(wide) as [Tensor, Tensor, Tensor];
      const expected = results(plainly, exact, bias === null ? null : wide(bias), scale, wide(arriving));
      ["result", "query", "key", "value"].forEach((what, at) => {
        expect(got[at]!.dtype).toBe(dtype);
        expectNear(got[at]!, expected[at]!, what);
      });
    });
  }

  it("equals attention computed by hand: two keys, one of them twice as likely", () => {
    scope(() => {
      // Two numbers of each head, and zeros.
      const rows = (...values: number[]) =>
        cat([tensor(values, { dtype }).view([1, 1, 2, 2]), zeros([1, 1, 2, least - 2], { dtype })], 3);
      const query = rows(1, 0, 1, 0);
      const key = rows(0, 5, Math.log(2), 5);
      const value = rows(3, 0, 0, 6);
      const bias = tensor([0, 0, 0, FORBIDDEN], { dtype }).view([1, 2, 2]);
      // Weights 1/3 and 2/3, up to the rounding of ln 2 and of the weights; then 1 and 0.
      const got = numbers(fused(query, key, value, bias, 1).view([2, least]).narrow(1, 0, 2));
      [1, 4, 3, 0].forEach((each, at) => expect(Math.abs(got[at]! - each)).toBeLessThan(2.5 * unit));
    });
  });

  it("has the values and gradients of float64 for any shape, layout and bias, and grouped heads", () => {
    fc.assert(fc.property(anyCase, check), { numRuns: rounds(60, 250), seed: 7 });
  });

  it("has them if the backward pass sums over queries in several rounds", () => {
    const shape = { batch: 1, groups: 1, size: 64, layout: "one projection", seed: 1 };
    check({ ...shape, shared: 2, queries: 700, columns: 900, bias: "causal" });
    check({ ...shape, shared: 1, queries: 1100, columns: 1100, bias: "one for all" });
  });

  it("keeps packed texts separate: bitwise the same as each alone", () => {
    fc.assert(
      fc.property(
        fc.array(length, { minLength: 2, maxLength: 5 }),
        fc.constantFrom([1, 1], [2, 1], [1, 3]),
        fc.constantFrom(least, 64),
        (lengths, [groups, shared], size) => {
          scope(() => {
            const total = lengths.reduce((sum, each) => sum + each, 0);
            const shape = {
              batch: 1,
              groups: groups!,
              shared: shared!,
              size,
              bias: "",
              seed: 1,
              layout: "one projection",
            };
            const inputs = inputsOf({ ...shape, queries: total, columns: total });
            const arriving = given(1, total, groups! * shared! * size);
            const own = lengths.map((each, at) =>
              at % 2 === 0
                ? biases.causal({ ...shape, queries: each, columns: each })
                : zeros([1, 1, each], { dtype }),
            );
            const together = results(
              (q, k, v) => fusedAttention(q, k, v, own, 0.3)!,
              inputs,
              null,
              0.3,
              arriving,
            );
            let first = 0;
            lengths.forEach((each, at) => {
              const part = inputs.map((input) => input.narrow(2, first, each)) as typeof inputs;
              const alone = results(fused, part, own[at]!, 0.3, arriving.narrow(1, first, each));
              together.forEach((all, which) => {
                expectSame(elements(all.narrow(which === 0 ? 1 : 2, first, each)), elements(alone[which]!));
              });
              first += each;
            });
          });
        },
      ),
      { numRuns: 25, seed: 3 },
    );
  });

  it("gives the same bits on one and two threads, and each row of a batch the same as alone", () => {
    fc.assert(
      fc.property(anyCase, (shape) => {
        scope(() => {
          const inputs = inputsOf(shape);
          const bias = biases[shape.bias as keyof typeof biases](shape);
          const arriving = given(shape.batch, shape.queries, shape.groups * shape.shared * shape.size);
          const bits = () => results(fused, inputs, bias, 0.2, arriving).map(elements);
          setThreads(1);
          const one = bits();
          setThreads(2);
          bits().forEach((each, which) => expectSame(each, one[which]!));
          const { groups } = shape;
          for (let row = 0; row < shape.batch; row += 1) {
            const alone = results(
              fused,
              inputs.map((input) => input.narrow(0, row, 1)) as typeof inputs,
              bias === null || bias.size(0) === 1 ? bias : bias.narrow(0, row * groups, groups),
              0.2,
              arriving.narrow(0, row, 1),
            );
            alone.forEach((each, which) => {
              const size = each.numel();
              expectSame(elements(each), one[which]!.subarray(row * size, (row + 1) * size));
            });
          }
        });
      }),
      { numRuns: 25, seed: 11 },
    );
  });

  it("ignores masked blocks and columns entirely, including their values", () => {
    scope(() => {
      const [queries, columns] = [70, 160];
      const shape = {
        batch: 1,
        groups: 2,
        shared: 2,
        queries,
        columns,
        size: 64,
        bias: "",
        seed: 1,
        layout: "cache",
      };
      const inputs = inputsOf(shape);
      const arriving = given(1, queries, 256);
      const own = mask(2, 2 * queries, columns - 64);
      const hidden = (bias: number) => cat([full([2, 2 * queries, 64], bias, { dtype }), own], 2);
      const skipped = results(fused, inputs, hidden(FORBIDDEN), 0.2, arriving).map(numbers);
      // Above the threshold nothing is skipped, but the weights are still 0.
      const seen = results(fused, inputs, hidden(ALMOST), 0.2, arriving).map(numbers);
      expect(seen).toEqual(skipped);
      const without = inputs.map((each, at) => (at === 0 ? each : each.narrow(2, 64, columns - 64)));
      const [result, ofQuery, ...rest] = results(fused, without as typeof inputs, own, 0.2, arriving);
      expect([numbers(result), numbers(ofQuery)]).toEqual(skipped.slice(0, 2));
      rest.forEach((each, at) => {
        const padded = cat([zeros([1, 2, 64, 64], { dtype }), each], 2);
        expect(numbers(padded)).toEqual(skipped[at + 2]);
      });
      // The contents of a skipped column are never read.
      const garbage = inputs.map((each) => each.clone()) as typeof inputs;
      for (const each of garbage.slice(1)) each.narrow(2, 3, 40).copy_(full([1, 2, 40, 64], NaN));
      expect(numbers(fused(...garbage, hidden(FORBIDDEN), 0.2))).toEqual(skipped[0]);
    });
  });

  it("gives 0, with gradients of 0, for queries that may attend to nothing", () => {
    scope(() => {
      const shape = {
        batch: 2,
        groups: 1,
        shared: 2,
        queries: 40,
        columns: 50,
        size: 16,
        bias: "",
        seed: 1,
        layout: "cache",
      };
      const inputs = inputsOf(shape);
      const arriving = given(2, 40, 32);
      const own = mask(2, 80, 50);
      // All of row 1; in row 0 token 5 of both heads.
      own.narrow(0, 1, 1).copy_(full([1, 80, 50], FORBIDDEN));
      for (const line of [5, 45])
        own
          .narrow(0, 0, 1)
          .narrow(1, line, 1)
          .copy_(full([1, 1, 50], FORBIDDEN));
      const [result, ofQuery, ofKey, ofValue] = results(fused, inputs, own, 0.2, arriving);
      for (const each of [result, ofQuery, ofKey, ofValue]) {
        expect(numbers(each).every(Number.isFinite)).toBe(true);
        expect(new Set(numbers(each.narrow(0, 1, 1)))).toEqual(new Set([0]));
      }
      expect(new Set(numbers(result.select(0, 0).narrow(0, 5, 1)))).toEqual(new Set([0]));
      expect(new Set(numbers(ofQuery.select(0, 0).narrow(1, 5, 1)))).toEqual(new Set([0]));
      expect(numbers(result.select(0, 0).narrow(0, 6, 1)).every((each) => each !== 0)).toBe(true);
    });
  });

  it("equals libtorch's softmax if a whole row has the same large bias, gradients included", () => {
    scope(() => {
      const shape = { batch: 1, groups: 1, shared: 2, queries: 40, columns: 70, size: 16, seed: 3 };
      const inputs = inputsOf({ ...shape, bias: "", layout: "contiguous" });
      const arriving = given(1, 40, 32);
      // With biases of ±1e8 and more, float32 cannot represent scores of size 1: all columns are equal.
      for (const bias of [-1e4, -1e8, -1e20, ALMOST, 1e8, 1e20]) {
        const own = full([1, 80, 70], bias, { dtype });
        const got = results(fused, inputs, own, 0.25, arriving);
        const exact = inputs.map((each) => each.detach().to("float32")) as typeof inputs;
        const expected = results(plainly, exact, own.to("float32"), 0.25, arriving.to("float32"));
        ["result", "query", "key", "value"].forEach((what, at) =>
          expectNear(got[at]!, expected[at]!, `${what} under a bias of ${bias}`),
        );
      }
    });
  });

  it("stays finite for huge scores, and propagates NaN to its own row only", () => {
    scope(() => {
      const query = given(1, 1, 3, 32);
      const key = given(1, 1, 40, 32);
      const value = given(1, 1, 40, 32);
      const huge = numbers(fused(query.mul(1e15), key.mul(1e15), value, null, 1));
      // All weight is on one key.
      const rows = (value.view([40, 32]).toArray() as number[][]).map(String);
      for (const row of [0, 1, 2]) expect(rows).toContain(String(huge.slice(row * 32, row * 32 + 32)));
      const inputs = [query.mul(1e15), key.mul(1e15), value] as [Tensor, Tensor, Tensor];
      const [, ofQuery, ofKey, ofValue] = results(fused, inputs, null, 1, ones([1, 3, 32]).to(dtype));
      expect([...numbers(ofQuery), ...numbers(ofKey)].every(Number.isFinite)).toBe(true);
      expect(numbers(ofValue).reduce((sum, each) => sum + each, 0)).toBe(96);
      query.narrow(2, 1, 1).copy_(full([1, 1, 1, 32], NaN));
      const got = numbers(fused(query, key, value, null, 1));
      expect(got.map(Number.isNaN)).toEqual(got.map((_, at) => at >= 32 && at < 64));
    });
  });

  it("keeps no weights for the backward pass, and never stores all of them", () => {
    scope(() => {
      const [heads, tokens, size] = [12, 1024, 64]; // all weights: 24 MiB in bfloat16
      const inputs = [0, 1, 2].map(() => given(1, heads, tokens, size).requiresGrad_()) as [
        Tensor,
        Tensor,
        Tensor,
      ];
      const arriving = given(1, tokens, heads * size); // 1.5 MiB
      const bytes = (isWide ? 2 : 1) * 2 ** 20;
      setThreads(2);
      const before = memoryAllocated();
      resetPeakMemoryStats();
      const result = fused(...inputs, null, 0.125);
      expect(memoryAllocated() - before).toBeLessThan(2 * bytes);
      result.backward(arriving);
      expect(maxMemoryAllocated() - before).toBeLessThan(13 * bytes);
    });
  });

  it("gives no gradient to operands that require none, and records nothing without gradients", () => {
    scope(() => {
      const [query, key, value] = [0, 1, 2].map(() => given(1, 2, 20, least)) as [Tensor, Tensor, Tensor];
      value.requiresGrad_();
      expect(noGrad(() => fused(query, key, value, null, 1)).requiresGrad).toBe(false);
      // The gradient may be one expanded number.
      fused(query, key, value, null, 1).sum().backward();
      expect([query.grad, key.grad]).toEqual([null, null]);
      const expected = results(
        plainly,
        [wide(query), wide(key), wide(value)],
        null,
        1,
        wide(ones([1, 20, 2 * least])),
      );
      expectNear(value.grad!, expected[3], "value");
    });
  });

  it("returns null where it does not apply", () => {
    scope(() => {
      const [query, key] = [given(2, 4, 3, least), given(2, 4, 5, least)];
      const attempt = (q: Tensor, k: Tensor, v: Tensor, own: Tensor[] = [], scale = 1) =>
        fusedAttention(q, k, v, own, scale);
      expect(attempt(query, key, key)).not.toBeNull();
      const elsewhere: Parameters<typeof attempt>[] = [
        [query.to(other), key.to(other), key.to(other)],
        [query, key, key.to(other)],
        [query, given(2, 3, 5, least), given(2, 3, 5, least)],
        [given(2, 0, 3, least), key, key],
        [given(0, 4, 3, least), key, key],
        [query, given(2, 0, 5, least), given(2, 0, 5, least)],
        [query, key, given(2, 4, 6, least)],
        [query, given(2, 4, 0, least), given(2, 4, 0, least)],
        [query, given(2, 4, least, 5).transpose(2, 3), key],
        [query.view([2, 4, 3 * least]), key, key],
        [given(2, 4, 3, beyond), given(2, 4, 3, beyond), given(2, 4, 3, beyond)],
        [query, key, key, [], 0],
        [query, key, key, [], -1],
        [query, key, key, [], NaN],
        [query, key, key, [], 1e9],
        [query, key, key, [given(3, 1, 5)]],
        [query, key, key, [given(8, 1, 4)]],
        [query, key, key, [given(8, 2, 5)]],
        [query, key, key, [given(5)]],
        [query, key, key, [randn([8, 1, 5]).to(other)]],
        [query, key, key, [given(8, 1, 5).requiresGrad_()]],
        [query, key, key, [given(1, 1, 2), given(1, 1, 3)]],
        [query, query, query, [given(1, 1, 2), given(1, 1, 2)]],
        [query, query, query, [given(1, 2, 1), given(1, 1, 2)]],
      ];
      // Vectors are whole.
      if (isWide) elsewhere.push([given(2, 4, 3, 24), given(2, 4, 5, 24), given(2, 4, 5, 24)]);
      for (const each of elsewhere) expect(attempt(...each)).toBeNull();
      expect(attempt(query, query, query, [given(1, 1, 2), given(8, 1, 1)])).not.toBeNull();
      expect(() => attempt(query, key, 3 as unknown as Tensor)).toThrow(
        "fusedAttention: expected a Tensor, got 3",
      );
    });
  });

  it("refuses any gradients that do not match its output", () => {
    scope(() => {
      const query = given(1, 2, 3, least);
      const [output, measures] = [given(1, 3, 2 * least), zeros([2, 1, 2, 3])];
      const attempt = (...own: [Tensor, Tensor, Tensor, Tensor]) => {
        const [q, out, sums, gradient] = own.map((each) => each.handle) as [number, number, number, number];
        return addon().fusedAttentionBackward(q, q, q, [], 1, out, sums, gradient);
      };
      attempt(query, output, measures, output).forEach((each) => addon().release(each));
      for (const wrong of [
        [query.to(other), output, measures, output],
        [query, given(1, 3, least), measures, output],
        [query, output.to(other), measures, output],
        [query, output, zeros([2, 1, 2, 4]), output],
        [query, output, zeros([1, 2, 3]), output],
        [query, output, measures.to("float64"), output],
        [query, output, measures, given(1, 2, 2 * least)],
        [query, output, measures, output.to(other)],
      ] as [Tensor, Tensor, Tensor, Tensor][]) {
        expect(() => attempt(...wrong)).toThrow(TorchError);
      }
    });
  });

  it("never crashes: each call with random tensors returns or refuses", () => {
    const numRuns = rounds(300, 1500);
    const side = fc.constantFrom(0, 1, 2, 3, 8, 33);
    const headSize = isWide ? fc.oneof(side, fc.constantFrom(16, 48), fc.constantFrom(16, 48)) : side;
    const change = fc.record({
      at: fc.nat(6),
      sizes: fc.array(side, { maxLength: 5 }),
      layout: fc.constantFrom("plain", "turned", "expanded", "other"),
      keepsShape: fc.boolean(),
    });
    const changes = fc.array(change, { maxLength: 2 });
    let served = 0;
    let refused = 0;
    fc.assert(
      fc.property(
        side,
        side,
        headSize,
        fc.constantFrom(1, 2),
        changes,
        (batch, queries, size, groups, wrong) => {
          scope(() => {
            const heads = 2;
            // Matching query, key, value, output, measures of rows, gradient and bias.
            const shapes = [
              [batch, heads, queries, size],
              [batch, groups, queries + 2, size],
              [batch, groups, queries + 2, size],
              [batch, queries, heads * size],
              [2, batch, heads, queries],
              [batch, queries, heads * size],
              [1, 1, queries + 2],
            ];
            const tensors = shapes.map((shape, at) => randn(shape).to(at === 4 ? "float32" : dtype));
            for (const { at, sizes, layout, keepsShape } of wrong) {
              const shape = keepsShape ? shapes[at]! : sizes;
              const order = shape.map((_, dimension) => shape.length - 1 - dimension);
              const plain = randn(shape).to(layout === "other" ? other : dtype);
              if (layout === "turned") tensors[at] = plain.permute(order).contiguous().permute(order);
              else tensors[at] = layout === "expanded" ? given().expand(shape) : plain;
            }
            const [q, k, v, output, sums, gradient, bias] = tensors.map((each) => each.handle) as [
              ...[number, number, number, number, number, number, number],
            ];
            const calls = [
              () => addon().fusedAttention(q, k, v, [bias], 0.5) ?? [],
              () => addon().fusedAttentionBackward(q, k, v, [bias], 0.5, output, sums, gradient),
              () => addon().fusedAttentionBackward(q, k, v, [bias, bias], 0.5, output, sums, gradient),
            ];
            for (const call of calls) {
              try {
                const made = call();
                served += made.length;
                made.forEach((each) => addon().release(each));
              } catch (error) {
                refused += 1;
                expect(error).toBeInstanceOf(AstraError);
                expect((error as AstraError).message).not.toMatch(/internal:/u);
              }
            }
          });
        },
      ),
      { numRuns, seed: 5 },
    );
    expect(Math.min(served, refused)).toBeGreaterThan((2 / 3) * numRuns);
  });
});

describe.skipIf(mayUseTiles)("fusedAttention without tiles or pairs", () => {
  it("does not apply", () => {
    scope(() => {
      const query = randn([1, 2, 3, 16]).to("bfloat16");
      expect(fusedAttention(query, query, query, [], 1)).toBeNull();
    });
  });
});
