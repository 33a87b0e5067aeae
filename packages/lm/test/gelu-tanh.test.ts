import { grad, liveTensors, noGrad, randn, scope, Generator } from "@astra-rl/torch";
import { checkGradient } from "@astra-rl/torch/testing";
import { afterEach, beforeEach, expect, it } from "vitest";
import { geluTanh } from "../src/families/gelu-tanh.js";

let before: number;
beforeEach(() => {
  before = liveTensors();
});
afterEach(() => {
  expect(liveTensors()).toBe(before);
});

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

it("has the gradient that differences give", () => {
  scope(() => checkGradient((x) => geluTanh(x!), [randn([3, 4]).to("float64")]));
});
