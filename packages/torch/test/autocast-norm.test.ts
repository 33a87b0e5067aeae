import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import {
  autocastLayerNorm,
  autocastRmsNorm,
  grad,
  layerNorm,
  manualSeed,
  randn,
  scope,
  setThreads,
  tensor,
  threads,
  type Tensor,
} from "../src/index.js";
import { rmsNorm } from "../src/later-operators.js";
import { checkGradient } from "../src/testing.js";
import { expectClose, numbers } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";
import { testAddon } from "./test-addon.js";

expectNoLeaks();

const epsilon = 1e-5;
const layer = (x: Tensor, weight: Tensor, bias: Tensor, dtype: "bfloat16" | "float32" | "float64") =>
  autocastLayerNorm(x, weight, bias, { epsilon, dtype });
const rms = (x: Tensor, weight: Tensor, dtype: "bfloat16" | "float32" | "float64") =>
  autocastRmsNorm(x, weight, { epsilon, dtype });

it.each(["float32", "bfloat16"] as const)("equals the norm computed by hand, with results in %s", (dtype) => {
  scope(() => {
    // Mean 2 and variance 4 without the epsilon; mean square 8, so (0, 2, …) / √8.
    const x = tensor([[0, 4, 0, 4]]);
    const weight = tensor([1, 2, 1, 2]);
    const tolerance = dtype === "bfloat16" ? 2 ** -7 : 1e-5;
    expectClose(numbers(layer(x, weight, tensor([0, 0, 1, 1]), dtype)), [-1, 2, 0, 3], tolerance);
    const share = 4 / Math.sqrt(8);
    expectClose(numbers(rms(x, weight, dtype)), [0, 2 * share, 0, 2 * share], tolerance);
  });
});

it("has the gradients given by finite differences", () => {
  scope(() => {
    const [x, weight, bias] = [randn([3, 5]), randn([5]), randn([5])].map((each) => each.to("float64"));
    checkGradient((...given) => layer(given[0]!, given[1]!, given[2]!, "float64"), [x!, weight!, bias!]);
    checkGradient((...given) => rms(given[0]!, given[1]!, "float64"), [x!, weight!]);
  });
});

it("libtorch's own operator, where there is one, has the same values", ({ skip }) => {
  scope(() => {
    const [x, weight] = [randn([2, 3, 5]), randn([5])].map((each) => each.to("float64"));
    const own = rmsNorm(x!, weight!, epsilon);
    expect(own !== null).toBe(testAddon().schema("aten::rms_norm") !== null);
    if (own === null) skip("this libtorch has none");
    else expectClose(numbers(own), numbers(rms(x!, weight!, "float64")), 1e-14);
  });
});

describe("in one pass", () => {
  const dtypes = fc.constantFrom("float32" as const, "bfloat16" as const);

  it("equals the norm in float64, gradients included, for any shape, scale, offset and types", () => {
    fc.assert(
      fc.property(
        fc.record({
          rows: fc.integer({ min: 0, max: 150 }),
          size: fc.integer({ min: 1, max: 70 }),
          spread: fc.constantFrom(0.01, 1, 100),
          offset: fc.constantFrom(0, 3, -50),
          input: dtypes,
          parameters: dtypes,
          isCentred: fc.boolean(),
          isStrided: fc.boolean(),
          isWide: fc.boolean(),
          seed: fc.nat(),
        }),
        ({ rows, size, spread, offset, input, parameters, isCentred, isStrided, isWide, seed }) => {
          const dtype = isWide ? "float32" : "bfloat16";
          manualSeed(seed);
          scope(() => {
            const width = isStrided ? size + 3 : size;
            const x = randn([rows, width])
              .mul(spread)
              .add(offset)
              .to(input)
              .narrow(1, 0, size)
              .detach()
              .requiresGrad_();
            const weight = randn([size]).to(parameters).requiresGrad_();
            const bias = randn([size]).to(parameters).requiresGrad_();
            const exact = [x, weight, bias].map((each) => each.detach().to("float64").requiresGrad_());
            const [got, expected] = isCentred
              ? [layer(x, weight, bias, dtype), layer(exact[0]!, exact[1]!, exact[2]!, "float64")]
              : [rms(x, weight, dtype), rms(exact[0]!, exact[1]!, "float64")];
            expect([got.dtype, got.shape]).toEqual([dtype, [rows, size]]);
            const largest = (of: Tensor) =>
              numbers(of).reduce((most, n) => Math.max(most, Math.abs(n)), 1e-3);
            const wide = exact[0]!.detach();
            const centred = isCentred ? wide.sub(wide.mean([-1], true)) : wide;
            const scales = centred.square().mean([-1], true).add(epsilon).rsqrt();
            // The rounding error of float32 in addition to half a unit of bfloat16, in units of the row's deviation
            // after the mean is subtracted. Far from 0, or with two nearly equal numbers, it is large.
            const lost = 1e-5 * (1 + (isCentred ? largest(wide.mul(scales)) : 0));
            const compare = (mine: Tensor, theirs: Tensor, scale: number) => {
              const unit = mine.dtype === "bfloat16" ? 2 ** -8 : 0;
              expectClose(numbers(mine), numbers(theirs), unit * largest(theirs) + lost * scale);
            };
            // A single number becomes 0 when the mean is subtracted, but the rounding error has the weight's size.
            compare(got, expected, Math.max(largest(expected), isCentred ? largest(exact[1]!.detach()) : 0));

            const arrived = randn([rows, size]).to(dtype);
            const count = isCentred ? 3 : 2;
            const mine = grad(got, [x, weight, bias].slice(0, count), { gradOutputs: arrived });
            const theirs = grad(expected, exact.slice(0, count), { gradOutputs: arrived.to("float64") });
            mine.forEach((gradient, at) => {
              const type = at === 0 ? input : parameters;
              expect([gradient!.dtype, gradient!.shape]).toEqual([type, theirs[at]!.shape]);
            });
            // A row's gradient is a difference of numbers of this size.
            compare(mine[0]!, theirs[0]!, largest(scales.mul(arrived.to("float64")).mul(exact[1]!.detach())));
            // Those of the parameters are sums over all rows; the weight's gradient, in units of the deviation, does
            // not depend on the weight.
            compare(mine[1]!, theirs[1]!, (1 + rows) * Math.max(1, largest(expected)));
            if (isCentred) compare(mine[2]!, theirs[2]!, 1 + rows);
          });
        },
      ),
      { numRuns: 150 },
    );
  });

  it("gives each row the same numbers in any batch and with any number of threads", () => {
    const before = threads();
    scope(() => {
      const x = randn([200, 768]).requiresGrad_();
      const [weight, bias] = [randn([768]).requiresGrad_(), randn([768]).requiresGrad_()];
      const arrived = randn([200, 768]);
      const all = () => {
        const result = layer(x, weight, bias, "bfloat16");
        return [result, ...grad(result, [x, weight, bias], { gradOutputs: arrived.to("bfloat16") })].map(
          (each) => numbers(each!),
        );
      };
      try {
        setThreads(1);
        const alone = all();
        setThreads(2);
        expect(all()).toEqual(alone);
        const row = layer(x.narrow(0, 137, 1), weight, bias, "bfloat16");
        expect(numbers(row)).toEqual(alone[0]!.slice(137 * 768, 138 * 768));
      } finally {
        setThreads(before);
      }
    });
  });

  it("gives no gradient to operands that require none", () => {
    scope(() => {
      const x = randn([4, 6]).requiresGrad_();
      const [weight, bias] = [randn([6]), randn([6])];
      layer(x, weight, bias, "bfloat16").sum().backward();
      expect(x.grad!.shape).toEqual([4, 6]);
      expect(weight.grad).toBeNull();
    });
  });
});

it("uses libtorch's own layer norm if results are not in bfloat16", () => {
  scope(() => {
    const [x, weight, bias] = [randn([3, 8]), randn([8]), randn([8])];
    const expected = layerNorm(x, [8], weight, bias, epsilon);
    expect(numbers(layer(x, weight, bias, "float32"))).toEqual(numbers(expected));
  });
});

it("refuses mismatched arguments by name", () => {
  scope(() => {
    const [x, weight] = [randn([3, 8]), randn([7])];
    expect(() => layer(x, weight, weight, "bfloat16")).toThrow(
      new TorchError("norm: weight must have 8 numbers, got float32[7]"),
    );
    expect(() => rms(x, null as never, "bfloat16")).toThrow(
      new TorchError("autocastRmsNorm: weight must be a Tensor, got null"),
    );
    expect(() => rms(tensor(1), weight, "bfloat16")).toThrow("norm: input must be [..., D], got float32[]");
  });
});
