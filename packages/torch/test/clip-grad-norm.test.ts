import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { breaking } from "../../base/test/support/breaking.js";
import { clipGradNorm_, liveTensors, scope, tensor, type Tensor } from "../src/index.js";
import { expectClose } from "./expect-close.js";

// Norms and clipped gradients computed by PyTorch: test/golden/make_optim.py.
interface Case {
  gradients: number[][];
  maxNorm: number;
  norm: number;
  clipped: number[][];
}
const golden = JSON.parse(readFileSync(new URL("golden/optim.json", import.meta.url), "utf8")) as {
  clipping: Record<"float32" | "float64", Case[]>;
};

function parametersWith(
  gradients: readonly (readonly number[] | null)[],
  dtype: "float32" | "float64",
): Tensor[] {
  return gradients.map((values) => {
    const shape = [values?.length ?? 1];
    const parameter = tensor(new Float64Array(shape[0]!), { shape, dtype, requiresGrad: true });
    if (values !== null) parameter.grad = tensor(Float64Array.from(values), { shape, dtype });
    return parameter;
  });
}

describe.each([["float64", 1e-12] as const, ["float32", 1e-6] as const])(
  "clipGradNorm_ in %s",
  (dtype, tolerance) => {
    it.each(golden.clipping[dtype])("clips norm $norm to $maxNorm like PyTorch", (c) => {
      scope(() => {
        const parameters = parametersWith(c.gradients, dtype);
        expectClose([clipGradNorm_(parameters, c.maxNorm)], [c.norm], tolerance);
        parameters.forEach((parameter, i) =>
          expectClose(parameter.grad!.toTypedArray(), c.clipped[i]!, tolerance),
        );
      });
    });
  },
);

describe("clipGradNorm_", () => {
  it("treats all gradients as one vector: 3 and 4 in two parameters have norm 5", () => {
    scope(() => {
      const parameters = parametersWith([[3], null, [4]], "float64");
      expect(clipGradNorm_(parameters, 1)).toBeCloseTo(5, 12);
      expectClose(parameters[0]!.grad!.toTypedArray(), [3 / (5 + 1e-6)], 1e-12);
      expectClose(parameters[2]!.grad!.toTypedArray(), [4 / (5 + 1e-6)], 1e-12);
    });
  });

  it("joins gradients of different dtypes", () => {
    scope(() => {
      const parameters = [...parametersWith([[3]], "float32"), ...parametersWith([[4]], "float64")];
      expect(clipGradNorm_(parameters, Infinity)).toBeCloseTo(5, 12);
      expect(parameters[0]!.grad!.item()).toBe(3);
    });
  });

  it("stays accurate over a long vector: 3 million times 0.1", () => {
    scope(() => {
      const [parameter] = [tensor(new Float32Array(3_000_000), { requiresGrad: true })];
      parameter!.grad = tensor(new Float32Array(3_000_000).fill(0.1));
      expectClose([clipGradNorm_([parameter!], 1)], [Math.fround(0.1) * Math.sqrt(3e6)], 1e-9);
    });
  });

  it.each([
    [Number.NaN, Number.NaN],
    [Infinity, Infinity],
    [-Infinity, Infinity],
  ])("returns a non-finite norm and leaves the gradients unchanged (%d)", (bad, norm) => {
    scope(() => {
      const parameters = parametersWith([[1, bad], [2]], "float32");
      expect(clipGradNorm_(parameters, 0.5)).toBe(norm);
      expect(Array.from(parameters[0]!.grad!.toTypedArray(), Number)).toEqual([1, bad]);
      expect(parameters[1]!.grad!.item()).toBe(2);
      expect(() => clipGradNorm_(parameters, 0.5, { errorIfNonfinite: true })).toThrow(TorchError);
    });
  });

  it("gives 0 without gradients", () => {
    scope(() => {
      expect(clipGradNorm_(parametersWith([null, null], "float32"), 1)).toBe(0);
      expect(clipGradNorm_([], 1)).toBe(0);
    });
  });

  it.each([Number.NaN, -1])("refuses maxNorm %d", (maxNorm) => {
    expect(() => clipGradNorm_([], maxNorm)).toThrow(breaking("out-of-range", "maxNorm"));
  });

  it("leaves no tensor behind", () => {
    scope(() => {
      const parameters = parametersWith([[3], [4]], "float32");
      clipGradNorm_(parameters, 1);
      const before = liveTensors();
      for (let round = 0; round < 5; round += 1) clipGradNorm_(parameters, 1);
      expect(liveTensors()).toBe(before);
    });
  });
});
