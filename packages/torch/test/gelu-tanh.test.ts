import { expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { Generator, geluTanh, grad, noGrad, randn, scope, tensor, type DType } from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

it.each([
  ["float64", 1e-13],
  ["float32", 1e-5],
  // Half a unit in the last of bfloat16's 8 bits, at values up to 12.
  ["bfloat16", 0.07],
] as const)("equals libtorch's own operator and its gradient in %s", (dtype, tolerance) => {
  scope(() => {
    const generator = new Generator(0);
    const x = randn([40, 50], { generator }).mul(3).to(dtype).requiresGrad_();
    const weight = randn([40, 50], { generator }).to(dtype);
    generator.dispose();
    const [ours, reference] = [geluTanh(x), x.gelu({ approximate: "tanh" })];
    const gap = (a: typeof x, b: typeof x) =>
      noGrad(() => a.to("float64").sub(b.to("float64")).abs().amax().item());
    expect(ours.dtype).toBe(dtype);
    expect(gap(ours, reference)).toBeLessThan(tolerance);
    const [ourGradient] = grad(ours, x, { gradOutputs: weight });
    const [referenceGradient] = grad(reference, x, { gradOutputs: weight });
    expect(ourGradient!.dtype).toBe(dtype);
    expect(gap(ourGradient!, referenceGradient!)).toBeLessThan(tolerance);
  });
});

it("has the gradient given by finite differences", () => {
  scope(() => checkGradient((x) => geluTanh(x!), [randn([3, 4]).to("float64")]));
});

it("is accurate to half a unit of bfloat16 over its whole range, and NaN for NaN", () => {
  scope(() => {
    // Every exponent from 2⁻²⁰ to 2¹⁰, both signs, and the ends.
    const inputs = [0, 30_000, -30_000, NaN];
    for (let power = -20; power <= 10; power += 1) {
      for (const digit of [1, 1.25, 1.828125]) inputs.push(digit * 2 ** power, -digit * 2 ** power);
    }
    const x = tensor(inputs, { dtype: "bfloat16" });
    const got = geluTanh(x).toTypedArray() as Float32Array;
    // x σ(u): x/2 (1 + tanh(u/2)) would lose precision to cancellation far below 0.
    const exact = Array.from(x.toTypedArray() as Float32Array, (each) => {
      const u = 2 * Math.sqrt(2 / Math.PI) * (each + 0.044715 * each ** 3);
      return each / (1 + Math.exp(-u));
    });
    got.forEach((value, at) => {
      if (Number.isNaN(inputs[at])) expect(value).toBeNaN();
      else {
        expect(
          Math.abs(value - exact[at]!),
          `geluTanh(${inputs[at]}) = ${value}, not ${exact[at]}`,
        ).toBeLessThanOrEqual(2 ** -8 * Math.abs(exact[at]!) + 1e-30);
      }
    });
  });
});

it("refuses integers and booleans like libtorch's operator", () => {
  scope(() => {
    for (const dtype of ["int64", "int32", "int16", "int8", "uint8", "bool"] as DType[]) {
      const x = tensor([1, 0, 1], { dtype });
      expect(() => geluTanh(x)).toThrow(`geluTanh: x must be of a floating-point type, got ${dtype}`);
      expect(() => x.gelu({ approximate: "tanh" })).toThrow(TorchError);
    }
  });
});
