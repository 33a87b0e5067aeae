import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import {
  checkpoint,
  dropout,
  enableGrad,
  Generator,
  grad,
  keep,
  liveTensors,
  noGrad,
  randn,
  scope,
  tensor,
  type Tensor,
} from "../src/index.js";
import { addon } from "../src/native.js";
import { checkGradient } from "../src/testing.js";

let before: number;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

/** A chain of layers in float64, with parameters shared between some of them. */
function makeChain(layers: number) {
  const generator = new Generator(5);
  const random = (...shape: number[]) =>
    keep(scope(() => randn(shape, { generator, dtype: "float64" }).mul(0.5))).requiresGrad_();
  const weights = Array.from({ length: layers }, () => random(4, 4));
  const shared = random(4);
  const input = random(3, 4);
  generator.dispose();
  const layer = (at: number) => (x: Tensor, scale: Tensor) =>
    x.add(x.matmul(weights[at]!).add(shared).tanh().mul(scale));
  const all = [...weights, shared, input];
  return { weights, shared, input, layer, all, dispose: () => all.forEach((each) => each.dispose()) };
}

type Chain = ReturnType<typeof makeChain>;

function lossOf(chain: Chain, checkpointed: boolean): Tensor {
  return scope(() => {
    const scale = tensor([0.5, 1, 1.5, 2], { dtype: "float64" });
    let hidden: Tensor = chain.input.mul(2);
    chain.weights.forEach((weight, at) => {
      hidden = checkpointed
        ? checkpoint(chain.layer(at), [hidden, scale], [weight, chain.shared])
        : chain.layer(at)(hidden, scale);
    });
    return hidden.square().mean();
  });
}

/** Loss and gradients of every leaf, which are cleared afterwards. */
function backward(chain: Chain, checkpointed: boolean): { loss: number; gradients: number[][] } {
  const loss = lossOf(chain, checkpointed);
  loss.backward();
  const gradients = chain.all.map((leaf) => Array.from(leaf.grad!.toTypedArray() as Float64Array));
  for (const leaf of chain.all) leaf.grad = null;
  const value = loss.item();
  loss.dispose();
  return { loss: value, gradients };
}

const worst = (a: number[][], b: number[][]) =>
  Math.max(...a.flatMap((row, at) => row.map((value, column) => Math.abs(value - b[at]![column]!))));

describe("checkpoint", () => {
  it("gives the loss and every gradient of the plain call, repeatedly", () => {
    const chain = makeChain(5);
    const plain = backward(chain, false);
    for (let time = 0; time < 3; time += 1) {
      const again = backward(chain, true);
      expect(again.loss).toBe(plain.loss);
      expect(worst(again.gradients, plain.gradients)).toBeLessThan(1e-12);
    }
    chain.dispose();
  });

  it("accumulates over several losses like the plain call", () => {
    const chain = makeChain(2);
    const sums = [false, true].map((checkpointed) => {
      for (let time = 0; time < 2; time += 1) {
        scope(() =>
          lossOf(chain, checkpointed)
            .mul(time + 1)
            .backward(),
        );
      }
      const sum = chain.all.map((leaf) => Array.from(leaf.grad!.toTypedArray() as Float64Array));
      for (const leaf of chain.all) leaf.grad = null;
      return sum;
    });
    expect(worst(sums[0]!, sums[1]!)).toBeLessThan(1e-12);
    chain.dispose();
  });

  it("works with grad() without changing .grad, and twice with a retained graph", () => {
    const chain = makeChain(3);
    const plain = backward(chain, false).gradients;
    scope(() => {
      const loss = lossOf(chain, true);
      for (const retainGraph of [true, true, false]) {
        const found = grad(loss, chain.all, { retainGraph });
        const values = found.map((each) => Array.from(each!.toTypedArray() as Float64Array));
        expect(worst(values, plain)).toBeLessThan(1e-12);
      }
      expect(chain.all.every((leaf) => leaf.grad === null)).toBe(true);
      expect(() => grad(loss, chain.all)).toThrow(TorchError);
    });
    chain.dispose();
  });

  it("matches finite differences", () => {
    const chain = makeChain(2);
    scope(() =>
      checkGradient(
        (x: Tensor) => {
          const scale = tensor([0.5, 1, 1.5, 2], { dtype: "float64" });
          return checkpoint(chain.layer(1), [checkpoint(chain.layer(0), [x, scale]), scale])
            .sin()
            .sum();
        },
        [chain.input.detach()],
      ),
    );
    chain.dispose();
  });

  it("draws the same dropout mask again, and does not affect later draws", () => {
    const draws = [false, true].map((checkpointed) => {
      addon().manualSeed(11);
      return scope(() => {
        const x = tensor([[1, 2, 3, 4, 5, 6, 7, 8]], { dtype: "float64" }).requiresGrad_();
        const step = (given: Tensor) => dropout(given, 0.5, true).square();
        const output = checkpointed ? checkpoint(step, [x]) : step(x);
        const between = dropout(x.detach(), 0.5, true);
        output.sum().backward();
        const after = dropout(x.detach(), 0.5, true);
        return [output, x.grad!, between, after].map((each) =>
          Array.from(each.toTypedArray() as Float64Array),
        );
      });
    });
    expect(draws[1]).toEqual(draws[0]);
    // A mask that is neither all ones nor all zeros.
    expect(new Set(draws[0]![1]!.map((value) => value === 0)).size).toBe(2);
  });

  it("makes the plain call if nothing requires a gradient", () => {
    let runs = 0;
    scope(() => {
      const x = tensor([1, 2]);
      const step = (given: Tensor) => {
        runs += 1;
        return given.mul(3);
      };
      expect(checkpoint(step, [x]).toArray()).toEqual([3, 6]);
      x.requiresGrad_();
      expect(noGrad(() => checkpoint(step, [x])).requiresGrad).toBe(false);
      const output = enableGrad(() => checkpoint(step, [x]));
      expect(output.requiresGrad).toBe(true);
      expect(runs).toBe(3);
      output.sum().backward();
      expect(runs).toBe(4);
      expect(x.grad!.toArray()).toEqual([3, 3]);
    });
  });

  it("a function that fails when run again fails the backward pass with its own error, without leaks", () => {
    scope(() => {
      const x = tensor([1, 2]).requiresGrad_();
      let runs = 0;
      const mistake = new RangeError("the second time is once too often");
      const output = checkpoint(
        (given) => {
          runs += 1;
          if (runs > 1) throw mistake;
          return given.exp();
        },
        [x],
      );
      expect(() => output.sum().backward()).toThrow(/once too often/);
      // The engine still works.
      checkpoint((given) => given.exp(), [x])
        .sum()
        .backward();
      expect(x.grad!.toArray()).toHaveLength(2);
    });
  });

  it("refuses an input that was changed, a second backward pass and second derivatives", () => {
    scope(() => {
      const x = tensor([1, 2]).requiresGrad_();
      const middle = x.mul(2);
      const output = checkpoint((given) => given.exp(), [middle]).sum();
      noGrad(() => middle.detach().add_(1));
      expect(() => output.backward()).toThrow(/changed in place/);

      const once = checkpoint((given) => given.exp(), [x]).sum();
      once.backward();
      expect(() => once.backward()).toThrow(/freed by an earlier backward pass/);

      const twice = checkpoint((given) => given.exp(), [x]).sum();
      expect(() => grad(twice, x, { createGraph: true })).toThrow(/cannot be differentiated in turn/);
    });
  });

  it("nests", () => {
    const values = [false, true].map((checkpointed) =>
      scope(() => {
        const x = tensor([0.3, -0.7], { dtype: "float64" }).requiresGrad_();
        const inner = (given: Tensor) => given.sin().mul(given);
        const outer = (given: Tensor) =>
          checkpointed ? checkpoint(inner, [given.exp()]).cos() : inner(given.exp()).cos();
        (checkpointed ? checkpoint(outer, [x]) : outer(x)).sum().backward();
        return Array.from(x.grad!.toTypedArray() as Float64Array);
      }),
    );
    expect(worst([values[0]!], [values[1]!])).toBeLessThan(1e-14);
  });
});
