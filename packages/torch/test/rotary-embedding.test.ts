import fc from "fast-check";
import { expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { grad, manualSeed, randn, rotaryEmbedding, scope, tensor, type Tensor } from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectClose, numbers } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const tables = (angles: Tensor) => [angles.cos(), angles.sin()] as const;

it.each(["float64", "float32", "bfloat16"] as const)(
  "turns channels i and i + E/2 by hand in %s",
  (dtype) => {
    scope(() => {
      // Two tokens, one head of two planes: (1, 3) and (2, 4) by a quarter and a half turn, then by none and back a quarter.
      const x = tensor([1, 2, 3, 4, 1, 2, 3, 4], { dtype, shape: [1, 2, 1, 4] });
      const cosine = tensor([0, -1, 1, 0], { dtype, shape: [1, 2, 2] });
      const sine = tensor([1, 0, 0, -1], { dtype, shape: [1, 2, 2] });
      const got = rotaryEmbedding(x, cosine, sine);
      expect([got.dtype, got.shape]).toEqual([dtype, [1, 2, 1, 4]]);
      expect(numbers(got)).toEqual([-3, -2, 1, -4, 1, 4, 3, -2]);
    });
  },
);

it("has the gradient given by finite differences", () => {
  scope(() => {
    const [cosine, sine] = tables(randn([2, 3, 2]).to("float64"));
    checkGradient((x) => rotaryEmbedding(x!, cosine, sine), [randn([2, 3, 2, 4]).to("float64")]);
  });
});

it("matches its definition in float64, gradient included, for any shape and layout", () => {
  fc.assert(
    fc.property(
      fc.record({
        batch: fc.integer({ min: 0, max: 3 }),
        tokens: fc.integer({ min: 0, max: 40 }),
        heads: fc.integer({ min: 0, max: 5 }),
        half: fc.integer({ min: 0, max: 70 }),
        dtype: fc.constantFrom("float32" as const, "bfloat16" as const),
        isTurned: fc.boolean(),
        seed: fc.nat(),
      }),
      ({ batch, tokens, heads, half, dtype, isTurned, seed }) => {
        manualSeed(seed);
        scope(() => {
          const made = isTurned
            ? randn([batch, heads, tokens, 2 * half]).transpose(1, 2)
            : randn([batch, tokens, heads, 2 * half]);
          const x = made.to(dtype).detach().requiresGrad_();
          const [cosine, sine] = tables(randn([batch, tokens, half])).map((each) => each.to(dtype)) as [
            Tensor,
            Tensor,
          ];
          const exact = x.detach().to("float64").requiresGrad_();
          const arrived = randn(x.shape).to(dtype);
          const got = rotaryEmbedding(x, cosine, sine);
          const expected = rotaryEmbedding(exact, cosine.to("float64"), sine.to("float64"));
          const [mine] = grad(got, x, { gradOutputs: arrived });
          const [theirs] = grad(expected, exact, { gradOutputs: arrived.to("float64") });
          expect([got.dtype, got.shape, mine!.shape]).toEqual([dtype, x.shape, x.shape]);
          const lost = dtype === "bfloat16" ? 2 ** -8 : 1e-6;
          const most = (of: Tensor) =>
            numbers(of).reduce((found, each) => Math.max(found, Math.abs(each)), 1);
          expectClose(numbers(got), numbers(expected), lost * most(expected));
          expectClose(numbers(mine!), numbers(theirs!), lost * most(theirs!));
        });
      },
    ),
    { numRuns: 100 },
  );
});

it("preserves lengths, and dot products depend on angle differences only", () => {
  scope(() => {
    manualSeed(3);
    const [query, key] = [randn([1, 1, 1, 8]), randn([1, 1, 1, 8])];
    const angles = tensor([1, 0.3, 0.1, 0.03], { shape: [1, 1, 4] });
    const turned = (x: Tensor, position: number) => rotaryEmbedding(x, ...tables(angles.mul(position)));
    const score = (a: Tensor, b: Tensor) => a.mul(b).sum().item();
    expect(score(turned(query, 5), turned(query, 5))).toBeCloseTo(score(query, query), 4);
    expect(score(turned(query, 7), turned(key, 4))).toBeCloseTo(score(turned(query, 3), key), 4);
  });
});

it("refuses mismatched arguments", () => {
  scope(() => {
    const x = randn([1, 2, 3, 4]);
    const [cosine, sine] = tables(randn([1, 2, 2]));
    expect(() => rotaryEmbedding(randn([2, 3, 4]), cosine, sine)).toThrow(
      new TorchError("rotary: input must be [B, T, H, E], E even, got float32[2, 3, 4]"),
    );
    expect(() => rotaryEmbedding(randn([1, 2, 3, 5]), cosine, sine)).toThrow("E even");
    expect(() => rotaryEmbedding(x, cosine.to("bfloat16"), sine)).toThrow(
      "cosine does not fit float32[1, 2, 3, 4]: got bfloat16[1, 2, 2]",
    );
    expect(() => rotaryEmbedding(x, cosine, sine.narrow(1, 0, 1))).toThrow("sine does not fit");
  });
});
