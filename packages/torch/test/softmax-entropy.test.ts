import { expect, it } from "vitest";
import {
  grad,
  randn,
  scope,
  selectiveLogSoftmax,
  selectiveLogSoftmaxWithEntropy,
  softmaxEntropy,
  tensor,
  type Tensor,
} from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectClose } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const numbers = (value: Tensor) => Array.from(value.toTypedArray() as Float32Array);
const places = (indices: number[]) => tensor(Int32Array.from(indices)).to("int64");

it("equals −Σ p·log p computed by hand: uniform, weights 1, 2 and 5, and certain", () => {
  scope(() => {
    const logits = tensor([
      [3, 3, 3],
      [0, Math.log(2), Math.log(5)],
      [-Infinity, 2, -Infinity],
    ]);
    const mixed = -[1 / 8, 2 / 8, 5 / 8].reduce((sum, p) => sum + p * Math.log(p), 0);
    expectClose(numbers(softmaxEntropy(logits, "float32")), [Math.log(3), mixed, 0], 1e-6);
    expect(numbers(softmaxEntropy(tensor([[NaN, 1]]), "float32"))).toEqual([NaN]);
    expect(numbers(softmaxEntropy(tensor([], { shape: [0, 4] }), "float32"))).toEqual([]);
  });
});

it("has the gradient given by finite differences, from logits and from log-probabilities", () => {
  scope(() => {
    const logits = randn([4, 6]).to("float64");
    checkGradient((x) => softmaxEntropy(x!, "float64"), [logits]);
    checkGradient(
      (x) => {
        const { logprobs, entropy } = selectiveLogSoftmaxWithEntropy(x!, places([3, 7, 7]), "float64");
        return logprobs.sum().add(entropy.mul(tensor([1, -2, 3, 0.5], { dtype: "float64" })).sum());
      },
      [logits],
    );
  });
});

it("is the same in blocks: with more rows than a block, and with longer rows than a block", () => {
  for (const [rows, vocabulary] of [
    [5, 2 ** 21],
    [2, 2 ** 22 + 3],
  ] as const) {
    scope(() => {
      const logits = randn([rows, vocabulary]).requiresGrad_();
      const entropy = softmaxEntropy(logits, "float32");
      const weights = tensor(Array.from({ length: rows }, (_, row) => row - 1.5));
      const [gradient] = grad(entropy, logits, { gradOutputs: weights });
      const logs = logits.logSoftmax(-1);
      const plain = logs.exp().mul(logs).sum([-1]).neg();
      const [expected] = grad(plain, logits, { gradOutputs: weights });
      expectClose(numbers(entropy), numbers(plain), 1e-3);
      expect(gradient!.sub(expected!).abs().max().item()).toBeLessThan(1e-6);
      expect(expected!.abs().max().item()).toBeGreaterThan(1e-6);
    });
  }
});

it("is that of the rounded logits in bfloat16, gradient included", () => {
  scope(() => {
    const logits = randn([7, 50]).mul(3).to("bfloat16").requiresGrad_();
    const exact = logits.detach().to("float64").requiresGrad_();
    const got = softmaxEntropy(logits, "float32");
    const expected = softmaxEntropy(exact, "float64");
    expectClose(numbers(got), numbers(expected), 1e-5);
    const weights = randn([7]);
    const [mine] = grad(got, logits, { gradOutputs: weights });
    const [theirs] = grad(expected, exact, { gradOutputs: weights.to("float64") });
    expect(mine!.dtype).toBe("bfloat16");
    expectClose(numbers(mine!), numbers(theirs!), 2 ** -7);
  });
});

it.each(["float32", "bfloat16"] as const)(
  "leaves log-probabilities as they are to the bit, in %s",
  (dtype) => {
    scope(() => {
      const logits = randn([6, 40]).to(dtype);
      const chosen = places([0, 41, 99, 41, 239]);
      const { logprobs, entropy } = selectiveLogSoftmaxWithEntropy(logits, chosen, "float32");
      expect(numbers(logprobs)).toEqual(numbers(selectiveLogSoftmax(logits, chosen, "float32")));
      expectClose(numbers(entropy), numbers(softmaxEntropy(logits, "float32")), 1e-5);
    });
  },
);
