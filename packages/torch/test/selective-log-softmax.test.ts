import fc from "fast-check";
import { expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { grad, randn, scope, selectiveLogSoftmax, tensor, type Tensor } from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectClose } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const numbers = (value: Tensor) => Array.from(value.toTypedArray() as Float32Array);
const places = (indices: number[]) => tensor(Int32Array.from(indices)).to("int64");

it("equals the log-probability computed by hand: three tokens with weights 1, 2 and 5", () => {
  scope(() => {
    const logits = tensor([[0, Math.log(2), Math.log(5)]]);
    expectClose(
      numbers(selectiveLogSoftmax(logits, places([2, 0, 2]), "float32")),
      [5 / 8, 1 / 8, 5 / 8].map(Math.log),
      1e-6,
    );
    // Logits that are exact in bfloat16: weights 1, e and e⁴.
    const rounded = tensor([[0, 1, 4]], { dtype: "bfloat16" });
    const total = 1 + Math.E + Math.exp(4);
    expectClose(
      numbers(selectiveLogSoftmax(rounded, places([1, 2]), "float32")),
      [1, 4].map((logit) => logit - Math.log(total)),
      1e-6,
    );
  });
});

it("has the gradient given by finite differences", () => {
  scope(() => {
    const logits = randn([3, 5]).to("float64");
    checkGradient((x) => selectiveLogSoftmax(x!, places([4, 0, 7, 7]), "float64"), [logits]);
  });
});

it.each([
  // Half a unit of bfloat16, relative to the largest summand.
  ["bfloat16", 2 ** -8],
  ["float32", 1e-5],
] as const)(
  "is logSoftmax at the places in %s, its gradient too, for any rows, vocabulary and choice",
  (dtype, unit) => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 90 }),
        fc.array(fc.nat(), { maxLength: 12 }),
        fc.constantFrom(0.1, 1, 30),
        (rows, vocabulary, picks, spread) => {
          scope(() => {
            const logits = randn([rows, vocabulary]).mul(spread).to(dtype).requiresGrad_();
            const indices = places(picks.map((pick) => pick % (rows * vocabulary)));
            const exact = logits.detach().to("float64").requiresGrad_();
            const got = selectiveLogSoftmax(logits, indices, "float32");
            const expected = selectiveLogSoftmax(exact, indices, "float64");
            expect(got.dtype).toBe("float32");
            // float32's rounding of the largest logits.
            expectClose(numbers(got), numbers(expected), 1e-6 * Math.max(2, 4 * spread));
            const weights = randn([picks.length]);
            const [mine] = grad(got, logits, { gradOutputs: weights });
            const [theirs] = grad(expected, exact, { gradOutputs: weights.to("float64") });
            expect(mine!.dtype).toBe(dtype);
            expectClose(numbers(mine!), numbers(theirs!), unit);
          });
        },
      ),
      { numRuns: 200 },
    );
  },
);

it.each(["float32", "bfloat16"] as const)(
  "tells of %s rows that are not a number or certain, and refuses places outside",
  (dtype) => {
    scope(() => {
      const logits = tensor(
        [
          [NaN, 1],
          [-Infinity, 2],
        ],
        { dtype },
      );
      expect(numbers(selectiveLogSoftmax(logits, places([1, 2, 3]), "float32"))).toEqual([NaN, -Infinity, 0]);
      expect(() => selectiveLogSoftmax(logits, places([4]), "float32")).toThrow(TorchError);
      expect(() => selectiveLogSoftmax(logits, places([-1]), "float32")).toThrow(TorchError);
    });
  },
);
