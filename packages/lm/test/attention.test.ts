import { Generator, randn, scope, tensor, type DType, type Tensor } from "@astra-rl/torch";
import { checkGradient } from "@astra-rl/torch/testing";
import { describe, expect, it } from "vitest";
import { attend, attentionBias, attentionBiases } from "../src/families/attention.js";

const size = { B: 2, H: 6, T: 3, S: 5, E: 4 };
const scale = 0.37;

function inputs(groups: number): [Tensor, Tensor, Tensor] {
  const { B, H, T, S, E } = size;
  const generator = new Generator(groups);
  const make = (shape: number[]) => randn(shape, { dtype: "float64", generator });
  return [make([B, H, T, E]), make([B, groups, S, E]), make([B, groups, S, E])];
}

/** The definition, number by number. */
function plainly(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  allowed: (b: number, t: number, s: number) => boolean,
) {
  const { B, H, T, S, E } = size;
  const groups = key.size(1);
  const [q, k, v] = [query, key, value].map((x) => x.toArray() as number[][][][]) as [
    number[][][][],
    number[][][][],
    number[][][][],
  ];
  const out: number[] = [];
  for (let b = 0; b < B; b++)
    for (let t = 0; t < T; t++)
      for (let h = 0; h < H; h++) {
        const g = Math.floor(h / (H / groups));
        const weights = Array.from({ length: S }, (_, s) => {
          const score = q[b]![h]![t]!.reduce((sum, x, e) => sum + x * k[b]![g]![s]![e]!, 0) * scale;
          return allowed(b, t, s) ? Math.exp(score) : 0;
        });
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        for (let e = 0; e < E; e++)
          out.push(weights.reduce((sum, w, s) => sum + (w / total) * v[b]![g]![s]![e]!, 0));
      }
  return out;
}

const options = (groups: number) => ({
  dtype: "float64" as const,
  device: "cpu",
  heads: size.H,
  keyValueHeads: groups,
});

/** Rows of masks [B or 1, T or 1, S]; every query may attend to something. */
const masks: [string, (b: number, t: number, s: number) => boolean, [number, number]][] = [
  ["one mask for all rows", (_, t, s) => (t + s) % 3 !== 1, [1, size.T]],
  ["a mask for each row", (b, t, s) => (b + t + s) % 3 !== 1, [size.B, size.T]],
  ["columns hidden from every query of a row", (b, _, s) => s !== 2 * b, [size.B, 1]],
];

describe.each([1, 2, 3, 6])("attend with %i key/value heads", (groups) => {
  it.each(masks)("matches its definition under %s", (_, allowed, [rows, queries]) => {
    scope(() => {
      const [query, key, value] = inputs(groups);
      const flags: number[] = [];
      for (let b = 0; b < rows; b++)
        for (let t = 0; t < queries; t++)
          for (let s = 0; s < size.S; s++) flags.push(Number(allowed(b, t, s)));
      const mask = tensor(Uint8Array.from(flags), { dtype: "bool", shape: [rows, 1, queries, size.S] });
      const bias = attentionBias(mask, size.T, options(groups));
      const got = attend(query, key, value, [bias!], scale);
      expect(got.shape).toEqual([size.B, size.T, size.H * size.E]);
      const expected = plainly(query, key, value, allowed);
      Array.from(got.toTypedArray(), Number).forEach((x, at) => expect(x).toBeCloseTo(expected[at]!, 12));
    });
  });

  it("is causal without a mask, and unmasked without a bias", () => {
    scope(() => {
      const [query, key, value] = inputs(groups);
      const unmasked = plainly(query, key, value, () => true);
      const got = attend(query, key, value, [], scale);
      Array.from(got.toTypedArray(), Number).forEach((x, at) => expect(x).toBeCloseTo(unmasked[at]!, 12));

      const [k, v] = [key.narrow(2, 0, size.T), value.narrow(2, 0, size.T)];
      const causal = attend(query, k, v, [attentionBias(null, size.T, options(groups))!], scale);
      // Causal: the same as all columns under a mask that hides those after the query.
      const expected = plainly(query, key, value, (_, t, s) => s <= t);
      Array.from(causal.toTypedArray(), Number).forEach((x, at) => expect(x).toBeCloseTo(expected[at]!, 12));
      expect(attentionBias(null, 1, options(groups))).toBeNull();
    });
  });

  it("keeps packed texts separate: each attends as it does alone, even a single token", () => {
    scope(() => {
      const generator = new Generator(7);
      const make = (heads: number) =>
        randn([1, heads, 8, size.E], { dtype: "float64", generator }).requiresGrad_();
      const given = [make(size.H), make(groups), make(groups)] as const;
      const own = tensor(Uint8Array.from([1, 0, 0, 1, 1, 0, 1, 0, 1]), {
        dtype: "bool",
        shape: [1, 1, 3, 3],
      });
      const segments = [
        { length: 4, mask: null },
        { length: 1, mask: null },
        { length: 3, mask: own },
      ];
      const biases = attentionBiases({ mask: null, segments }, 8, options(groups));
      const weights = randn([8, size.H * size.E], { dtype: "float64", generator });
      const together = attend(...given, biases, scale).view([8, size.H * size.E]);
      together.mul(weights).sum().backward();
      const gradients = given.map((each) => Array.from(each.grad!.toTypedArray(), Number));
      given.forEach((each) => (each.grad = null));

      let start = 0;
      segments.forEach(({ length, mask }) => {
        const [q, k, v] = given.map((each) => each.narrow(2, start, length)) as [Tensor, Tensor, Tensor];
        const alone = attend(q, k, v, attentionBiases({ mask }, length, options(groups)), scale);
        const [got, expected] = [together.narrow(0, start, length), alone].map((each) =>
          Array.from(each.contiguous().toTypedArray(), Number),
        );
        got!.forEach((x, at) => expect(x).toBeCloseTo(expected![at]!, 12));
        alone
          .view([length, -1])
          .mul(weights.narrow(0, start, length))
          .sum()
          .backward();
        start += length;
      });
      given.forEach((each, at) => {
        Array.from(each.grad!.toTypedArray(), Number).forEach((x, i) =>
          expect(x).toBeCloseTo(gradients[at]![i]!, 12),
        );
      });
    });
  });

  it("has the gradient given by finite differences", () => {
    scope(() => {
      const mask = tensor(Uint8Array.from([1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 0, 1, 1]), {
        dtype: "bool",
        shape: [1, 1, size.T, size.S],
      });
      const bias = attentionBias(mask, size.T, options(groups));
      checkGradient((query, key, value) => attend(query!, key!, value!, [bias!], scale), inputs(groups));
    });
  });
});

describe("attend in bfloat16", () => {
  it.each([1, 2, 6])(
    "matches float64 up to rounding, gradients included, with %i key/value heads",
    (groups) => {
      scope(() => {
        const generator = new Generator(groups);
        const make = (heads: number) =>
          randn([1, heads, 90, 16], { generator }).to("bfloat16").requiresGrad_();
        const given = [make(size.H), make(groups), make(groups)] as const;
        const exact = given.map((each) => each.detach().to("float64").requiresGrad_()) as [
          Tensor,
          Tensor,
          Tensor,
        ];
        const arriving = randn([1, 90, size.H * 16], { generator }).to("bfloat16");
        const segments = [
          { length: 40, mask: null },
          { length: 1, mask: null },
          { length: 49, mask: null },
        ];
        for (const parts of [undefined, segments]) {
          const biases = (dtype: DType) =>
            attentionBiases({ mask: null, segments: parts }, 90, { ...options(groups), dtype });
          const got = attend(...given, biases("bfloat16"), 0.25);
          const expected = attend(...exact, biases("float64"), 0.25);
          got.backward(arriving);
          expected.backward(arriving.to("float64"));
          const pairs = [[got, expected], ...given.map((each, at) => [each.grad!, exact[at]!.grad!])];
          for (const [rounded, whole] of pairs) {
            expect(rounded!.dtype).toBe("bfloat16");
            const difference = rounded!.detach().to("float64").sub(whole!.detach()).abs().amax();
            // Without tiles, intermediate scores and weights are also rounded.
            expect(difference.item()).toBeLessThan(2 ** -6 * whole!.detach().abs().amax().item());
          }
          for (const each of [...given, ...exact]) each.grad = null;
        }
      });
    },
  );
});

describe("attentionBias", () => {
  it("gives finite values for a query that may attend to nothing, in every type", () => {
    scope(() => {
      for (const dtype of ["float32", "bfloat16", "float16"] as const) {
        const mask = tensor(new Uint8Array(4), { dtype: "bool", shape: [1, 1, 2, 2] });
        const bias = attentionBias(mask, 2, { ...options(1), dtype, heads: 1 })!;
        const sums = bias.add(bias).to("float32").softmax(-1).toTypedArray();
        expect([...(sums as Float32Array)]).toEqual([0.5, 0.5, 0.5, 0.5]);
      }
    });
  });
});
