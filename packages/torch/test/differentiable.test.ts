import { describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { differentiable, enableGrad, grad, noGrad, scope, tensor, type Tensor } from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectNoLeaks } from "./live-tensors.js";
import { testAddon } from "./test-addon.js";

expectNoLeaks();

const cube = (x: Tensor) =>
  differentiable({
    name: "cube",
    inputs: [x],
    forward: () => ({ output: x.pow(3), saved: [x] }),
    backward: (gradOutput, [saved]) => [saved!.square().mul(3).mul(gradOutput)],
  });

/** x·y, keeping its own output as well, which must not keep the graph alive. */
const product = (x: Tensor, y: Tensor | null) =>
  differentiable({
    name: "product",
    inputs: [x, y],
    forward: () => {
      const output = y === null ? x.clone() : x.mul(y);
      return { output, saved: y === null ? [output] : [output, x, y] };
    },
    backward: (gradOutput, [, first, second]) =>
      first === undefined || second === undefined
        ? [gradOutput.clone(), null]
        : [gradOutput.mul(second), gradOutput.mul(first)],
  });

describe("differentiable", () => {
  it("uses the given derivative inside a larger graph", () => {
    scope(() => {
      const x = tensor([0.5, -1.5, 2], { dtype: "float64" });
      checkGradient((input) => cube(input!.sin()).mul(2), [x]);
      const y = tensor([2, 3, -1], { dtype: "float64" });
      checkGradient((a, b) => product(cube(a!), b!), [x, y]);
    });
  });

  it("accumulates into leaves: d(x³)/dx = 3x²", () => {
    scope(() => {
      const x = tensor([1, 2, -3], { requiresGrad: true });
      cube(x).sum().backward();
      cube(x).sum().backward();
      expect(x.grad!.toArray()).toEqual([6, 24, 54]);
      x.grad = null;
    });
  });

  it("accepts absent inputs and inputs without gradients", () => {
    scope(() => {
      const x = tensor([4], { requiresGrad: true });
      product(x, null).backward();
      expect(x.grad!.toArray()).toEqual([1]);
      x.grad = null;
      product(x, tensor([5])).backward();
      expect(x.grad!.toArray()).toEqual([5]);
      x.grad = null;
    });
  });

  it("makes no graph if no input requires a gradient", () => {
    scope(() => {
      const x = tensor([1], { requiresGrad: true });
      expect(noGrad(() => cube(x)).requiresGrad).toBe(false);
      expect(cube(x.detach()).requiresGrad).toBe(false);
      expect(cube(x).requiresGrad).toBe(true);
    });
  });

  it("may run another backward pass in its backward pass", () => {
    // The gradient of cos, recomputed from the input as in gradient checkpointing.
    const again = (x: Tensor) =>
      differentiable({
        name: "again",
        inputs: [x],
        forward: () => ({ output: cube(x).cos(), saved: [x] }),
        backward: (gradOutput, [saved]) => {
          const leaf = saved!.detach().requiresGrad_();
          const [gradient] = grad(
            enableGrad(() => cube(leaf).cos()),
            leaf,
            { gradOutputs: gradOutput },
          );
          return [gradient!];
        },
      });
    scope(() => {
      const x = tensor([0.3, -0.7], { dtype: "float64" });
      checkGradient((input) => again(again(input!)), [x]);
    });
  });

  it("can be used twice if the graph is retained, and refuses otherwise", () => {
    scope(() => {
      const x = tensor([2], { requiresGrad: true });
      const y = cube(x);
      expect(grad(y, x, { retainGraph: true })[0]!.item()).toBe(12);
      expect(grad(y, x)[0]!.item()).toBe(12);
      expect(() => grad(y, x)).toThrow(/freed/);
    });
  });

  it.each([
    [
      "an error of its own",
      () => {
        throw new RangeError("no derivative here");
      },
      /bad: no derivative here/,
    ],
    [
      "too few gradients",
      () => [],
      /bad: backward must give a gradient, or null, for each of 1 inputs, but gave 0/,
    ],
    ["a gradient of another shape", () => [tensor([1, 2, 3])], /shape|expand/],
    ["something that is no tensor", () => [7 as unknown as Tensor], /bad: must be a Tensor or null, got 7/],
  ] as const)("turns %s into an error of the backward pass", (_, backward, message) => {
    scope(() => {
      const x = tensor([1, 2], { requiresGrad: true });
      const y = differentiable({
        name: "bad",
        inputs: [x],
        forward: () => ({ output: x.clone(), saved: [] }),
        backward: backward as () => Tensor[],
      });
      expect(() => y.sum().backward()).toThrow(message);
      expect(() => y.sum().backward()).toThrow(Error);
      // The engine still works after the error.
      cube(x).sum().backward();
      expect(x.grad!.toArray()).toEqual([3, 12]);
      x.grad = null;
    });
  });

  it("refuses outputs that are views, or of a type without gradients", () => {
    scope(() => {
      const x = tensor([1, 2], { requiresGrad: true });
      const wrong = (make: () => Tensor) => () =>
        differentiable({
          name: "wrong",
          inputs: [x],
          forward: () => ({ output: make(), saved: [] }),
          backward: () => [null],
        });
      expect(wrong(() => x.view([2, 1]))).toThrow(TorchError);
      expect(wrong(() => x.to("int64"))).toThrow(/floating-point/);
    });
  });

  it("frees what it saved when the graph ends, with or without a backward pass", () => {
    const bytes = testAddon().liveBytes();
    for (let round = 0; round < 50; round++) {
      scope(() => {
        const x = tensor([1, 2], { requiresGrad: true });
        const y = product(cube(x), cube(x));
        if (round % 2 === 0) y.sum().backward();
        x.grad = null;
      });
    }
    expect(testAddon().liveBytes()).toBe(bytes);
  });
});
