import { describe, expect, it } from "vitest";
import {
  arange,
  cat,
  dispose,
  einsum,
  embedding,
  Generator,
  grad,
  layerNorm,
  linear,
  liveTensors,
  noGrad,
  ones,
  rand,
  randn,
  scope,
  stack,
  tensor,
  where,
  zeros,
  type Tensor,
} from "../src/index.js";
import { checkGradient } from "../src/testing.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

describe("backward", () => {
  it("gives the derivative worked out by hand", () => {
    scope(() => {
      // f = Σ (x y + x²): df/dx = y + 2x, df/dy = x
      const x = tensor([1, 2], { requiresGrad: true });
      const y = tensor([3, -4], { requiresGrad: true });
      x.mul(y).add(x.square()).sum().backward();
      expect(x.grad?.toArray()).toEqual([5, 0]);
      expect(y.grad?.toArray()).toEqual([1, 2]);
    });
  });

  it("accumulates over calls, into the same object, until the gradient is removed", () => {
    scope(() => {
      const x = tensor([1, 2], { requiresGrad: true });
      x.mul(3).sum().backward();
      const first = x.grad;
      x.mul(4).sum().backward();
      expect(x.grad).toBe(first);
      expect(first?.toArray()).toEqual([7, 7]);
      x.grad = null;
      expect(x.grad).toBeNull();
      expect(first?.disposed).toBe(true);
      x.mul(2).sum().backward();
      expect((x.grad as Tensor | null)?.toArray()).toEqual([2, 2]);
    });
  });

  it("takes the derivative of a tensor with several elements as an argument", () => {
    scope(() => {
      const x = tensor([1, 2], { requiresGrad: true });
      x.square().backward(tensor([1, 10]));
      expect(x.grad?.toArray()).toEqual([2, 40]);
      expect(() => x.square().backward()).toThrow(
        /^backward: grad can be implicitly created only for scalar outputs/u,
      );
      expect(() => x.square().backward(ones([3]))).toThrow(/^backward: /u);
    });
  });

  it("refuses a second pass unless the graph was retained", () => {
    scope(() => {
      const x = tensor([2], { requiresGrad: true });
      const y = x.square().sum();
      y.backward(null, { retainGraph: true });
      y.backward();
      expect(x.grad?.toArray()).toEqual([8]);
      expect(() => y.backward()).toThrow(/^backward: Trying to backward through the graph a second time/u);
    });
  });

  it("returns the sparse gradient of a lookup as a dense one, alone, accumulated, and with another use", () => {
    scope(() => {
      const table = tensor(
        [
          [1, 2],
          [3, 4],
          [5, 6],
        ],
        { requiresGrad: true },
      );
      const ids = tensor([0, 2, 0], { dtype: "int64" });
      const look = () => embedding(table, ids, { sparse: true }).mul(3).sum();
      const alone = [
        [6, 6],
        [0, 0],
        [3, 3],
      ];
      const times = (factor: number, added = 0) =>
        alone.map((row) => row.map((value) => factor * value + added));
      expect(grad([look()], [table])[0]?.toArray()).toEqual(alone);
      look().backward();
      look().backward(); // not read in between
      expect(table.grad?.toArray()).toEqual(times(2));
      const first = table.grad;
      look().add(table.sum()).backward();
      expect(table.grad).toBe(first);
      expect(first?.toArray()).toEqual(times(3, 1));
    });
  });

  it("reports when nothing requires a gradient", () => {
    scope(() => {
      expect(() => tensor([1]).sum().backward()).toThrow(
        /outputs\[0\], float32\[\], does not depend on any tensor/u,
      );
    });
  });

  it("works after the handles of intermediate values are gone", () => {
    const x = tensor([0.5], { requiresGrad: true });
    const loss = scope(() => x.exp().mul(x).sin().sum());
    loss.backward();
    // d/dx sin(x eˣ) = cos(x eˣ) eˣ (1 + x)
    const expected = Math.cos(0.5 * Math.exp(0.5)) * Math.exp(0.5) * 1.5;
    expect(x.grad?.item()).toBeCloseTo(expected, 6);
    dispose([x, loss]);
  });

  it("frees the gradient's handle with its tensor", () => {
    const before = liveTensors();
    const x = tensor([1], { requiresGrad: true });
    const y = x.mul(2);
    y.backward();
    expect(x.grad?.item()).toBe(2);
    expect(liveTensors()).toBe(before + 3);
    dispose([x, y]);
    expect(liveTensors()).toBe(before);
  });

  it("accepts a gradient of the tensor's own shape and dtype only", () => {
    scope(() => {
      const x = tensor([1, 2], { requiresGrad: true });
      const given = tensor([5, 6]);
      x.grad = given;
      expect(x.grad).toBe(given);
      expect(() => (x.grad = tensor([1]))).toThrow(/must match the tensor, float32\[2\], got float32\[1\]/u);
      expect(() => (x.grad = zeros([2], { dtype: "float64" }))).toThrow(/must match/u);
      expect(() => (x.mul(2).grad = given)).toThrow(/only a leaf/u);
    });
  });

  it("refuses gradients for integers and in-place changes of leaves", () => {
    scope(() => {
      expect(() => tensor([1], { dtype: "int64" }).requiresGrad_()).toThrow(/only floating-point tensors/u);
      const x = tensor([1], { requiresGrad: true });
      expect(() => x.add_(1)).toThrow(
        /^aten::add_.Scalar: a leaf Variable that requires grad is being used in an in-place/u,
      );
      noGrad(() => x.add_(1));
      expect(x.item()).toBe(2);
      expect(() => x.mul(2).requiresGrad_(false)).toThrow(/only leaves/u);
      expect(x.detach().requiresGrad).toBe(false);
    });
  });
});

describe("grad", () => {
  it("leaves every .grad unchanged and can be differentiated again", () => {
    scope(() => {
      const x = tensor([3], { requiresGrad: true });
      const y = x.pow(3).sum();
      const [first] = grad(y, x, { createGraph: true });
      expect(first?.item()).toBe(27);
      const [second] = grad((first as Tensor).sum(), x);
      expect(second?.item()).toBe(18);
      expect(x.grad).toBeNull();
    });
  });

  it("gives null for unused inputs, only if allowed", () => {
    scope(() => {
      const x = tensor([3], { requiresGrad: true });
      const z = tensor([4], { requiresGrad: true });
      expect(() => grad(x.square().sum(), [x, z])).toThrow(/^gradients: /u);
      const [dx, dz] = grad(x.square().sum(), [x, z], { allowUnused: true });
      expect(dx?.item()).toBe(6);
      expect(dz).toBeNull();
      // @ts-expect-error not a tensor
      expect(() => grad(3, x)).toThrow("grad: outputs must be Tensors, got 3");
    });
  });
});

describe("gradients of operators, against central differences", () => {
  const g = (seed: number) => new Generator(seed);
  const checks: [string, (...inputs: Tensor[]) => Tensor, (make: Make) => Tensor[]][] = [];
  interface Make {
    normal(...shape: number[]): Tensor;
    /** In (0.2, 0.9): away from kinks and poles. */
    unit(...shape: number[]): Tensor;
  }
  const add = (name: string, fn: (...inputs: Tensor[]) => Tensor, inputs: (make: Make) => Tensor[]) =>
    checks.push([name, fn, inputs]);
  const one = (make: Make) => [make.normal(2, 3)];
  const two = (make: Make) => [make.normal(2, 3), make.unit(2, 3)];

  for (const name of [
    "exp",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "square",
    "neg",
    "expm1",
    "erf",
    "gelu",
    "silu",
    "logSigmoid",
    "softplus",
    "mish",
    "atan",
    "sinh",
    "cosh",
  ] as const)
    add(name, (x) => (x as Tensor)[name](), one);
  for (const name of [
    "log",
    "log1p",
    "log2",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "asin",
    "acos",
    "atanh",
    "logit",
    "lgamma",
  ] as const)
    add(
      name,
      (x) => (x as Tensor)[name](),
      (make) => [make.unit(2, 3)],
    );
  add("gelu tanh", (x) => (x as Tensor).gelu({ approximate: "tanh" }), one);
  add(
    "relu",
    (x) => (x as Tensor).relu(),
    (make) => [make.unit(2, 3)],
  );
  add(
    "abs",
    (x) => (x as Tensor).abs(),
    (make) => [make.unit(2, 3)],
  );
  add("add alpha", (x, y) => (x as Tensor).add(y as Tensor, { alpha: -2.5 }), two);
  add(
    "sub broadcast",
    (x, y) => (x as Tensor).sub(y as Tensor),
    (m) => [m.normal(2, 3), m.normal(3)],
  );
  add("mul", (x, y) => (x as Tensor).mul(y as Tensor), two);
  add("div", (x, y) => (x as Tensor).div(y as Tensor), two);
  add(
    "pow",
    (x, y) => (x as Tensor).pow(y as Tensor),
    (m) => [m.unit(2, 3), m.normal(2, 3)],
  );
  add("maximum", (x, y) => (x as Tensor).maximum(y as Tensor), two);
  add("minimum", (x, y) => (x as Tensor).minimum(y as Tensor), two);
  add("clamp", (x) => (x as Tensor).clamp(-0.4, 0.6), one);
  add("where", (x, y) => where(tensor([true, false, true]), x as Tensor, y as Tensor), two);
  add("lerp", (x, y) => (x as Tensor).lerp(y as Tensor, 0.3), two);
  add("addcmul", (x, y) => (x as Tensor).addcmul(y as Tensor, x as Tensor, { value: 0.7 }), two);
  add("addcdiv", (x, y) => (x as Tensor).addcdiv(x as Tensor, y as Tensor), two);
  add("softmax", (x) => (x as Tensor).softmax(-1), one);
  add("logSoftmax", (x) => (x as Tensor).logSoftmax(0), one);
  add("logsumexp", (x) => (x as Tensor).logsumexp([1]), one);
  add("sum dims", (x) => (x as Tensor).sum([0, 1]), one);
  add("mean", (x) => (x as Tensor).mean([1], true), one);
  add("prod", (x) => (x as Tensor).prod(1), one);
  add("amax", (x) => (x as Tensor).amax([1]), one);
  add("max dim", (x) => (x as Tensor).max(1)[0], one);
  add("norm", (x) => (x as Tensor).norm(), one);
  add("std", (x) => (x as Tensor).std([1]), one);
  add("var", (x) => (x as Tensor).var([1], false), one);
  add("cumsum", (x) => (x as Tensor).cumsum(1), one);
  add("topk", (x) => (x as Tensor).topk(2)[0], one);
  add("sort", (x) => (x as Tensor).sort(1, true)[0], one);
  add("matmul", (x, y) => (x as Tensor).matmul((y as Tensor).t()), two);
  add(
    "bmm",
    (x, y) => (x as Tensor).bmm(y as Tensor),
    (m) => [m.normal(2, 2, 3), m.normal(2, 3, 2)],
  );
  add(
    "addmm",
    (x, y, z) => (x as Tensor).addmm(y as Tensor, z as Tensor, { beta: 0.5, alpha: 2 }),
    (m) => [m.normal(2, 2), m.normal(2, 3), m.normal(3, 2)],
  );
  add(
    "baddbmm",
    (x, y, z) => (x as Tensor).baddbmm(y as Tensor, z as Tensor),
    (m) => [m.normal(1, 2, 2), m.normal(1, 2, 3), m.normal(1, 3, 2)],
  );
  add(
    "linear",
    (x, w, b) => linear(x as Tensor, w as Tensor, b as Tensor),
    (m) => [m.normal(2, 3), m.normal(4, 3), m.normal(4)],
  );
  add("einsum", (x, y) => einsum("ij,kj->ik", [x as Tensor, y as Tensor]), two);
  add(
    "outer",
    (x, y) => (x as Tensor).outer(y as Tensor),
    (m) => [m.normal(2), m.normal(3)],
  );
  add(
    "layerNorm",
    (x, w, b) => layerNorm(x as Tensor, [3], w as Tensor, b as Tensor),
    (m) => [m.normal(2, 3), m.normal(3), m.normal(3)],
  );
  add(
    "embedding",
    (w) => embedding(w as Tensor, tensor([2, 0, 2], { dtype: "int64" })),
    (m) => [m.normal(3, 2)],
  );
  add(
    "gather",
    (x) =>
      (x as Tensor).gather(
        1,
        tensor(
          [
            [2, 2],
            [0, 1],
          ],
          { dtype: "int64" },
        ),
      ),
    one,
  );
  add(
    "scatterAdd",
    (x, y) =>
      (x as Tensor).scatterAdd(
        1,
        tensor(
          [
            [2, 2, 0],
            [0, 1, 1],
          ],
          { dtype: "int64" },
        ),
        y as Tensor,
      ),
    two,
  );
  add("indexSelect", (x) => (x as Tensor).indexSelect(1, tensor([2, 2, 0], { dtype: "int64" })), one);
  add("index", (x) => (x as Tensor).index([null, tensor([1, 1], { dtype: "int64" })]), one);
  add(
    "indexPut",
    (x, y) => (x as Tensor).indexPut([tensor([0, 0], { dtype: "int64" })], y as Tensor, true),
    two,
  );
  add("indexAdd", (x, y) => (x as Tensor).indexAdd(0, tensor([1, 1], { dtype: "int64" }), y as Tensor), two);
  add("maskedFill", (x) => (x as Tensor).maskedFill(tensor([true, false, false]), 3), one);
  add("cat", (x, y) => cat([x as Tensor, y as Tensor], 1), two);
  add("stack", (x, y) => stack([x as Tensor, y as Tensor], 1), two);
  add(
    "shape changes",
    (x) => (x as Tensor).t().reshape([2, 3]).unsqueeze(0).expand([2, 2, 3]).flatten(0, 1).narrow(0, 1, 2),
    one,
  );
  add("slice and select", (x) => (x as Tensor).slice(1, 0, 3, 2).select(0, 1), one);
  add("repeatInterleave", (x) => (x as Tensor).repeatInterleave(2, 1), one);
  add(
    "roll and flip",
    (x) =>
      (x as Tensor)
        .roll([1], [1])
        .flip([0])
        .mul(x as Tensor),
    one,
  );
  add("tril", (x) => (x as Tensor).tril(), one);
  add(
    "copy_ into a clone",
    (x, y) =>
      (x as Tensor)
        .clone()
        .copy_(y as Tensor)
        .mul(y as Tensor),
    two,
  );
  add("mseLoss", (x, y) => (x as Tensor).mseLoss(y as Tensor), two);
  add("huberLoss", (x, y) => (x as Tensor).huberLoss(y as Tensor, "sum", 0.7), two);
  add(
    "binaryCrossEntropyWithLogits",
    (x, y) => (x as Tensor).binaryCrossEntropyWithLogits((y as Tensor).detach()),
    (m) => [m.normal(2, 3), m.unit(2, 3)].slice(0, 1).concat(m.unit(2, 3)),
  );
  add(
    "crossEntropyLoss",
    (x) => (x as Tensor).crossEntropyLoss(tensor([2, 0], { dtype: "int64" }), null, "mean", -100, 0.1),
    one,
  );
  add("nllLoss", (x) => (x as Tensor).logSoftmax(-1).nllLoss(tensor([2, 0], { dtype: "int64" })), one);
  add(
    "klDiv",
    (x, y) => (x as Tensor).logSoftmax(-1).klDiv((y as Tensor).detach(), "sum"),
    (m) => [m.normal(2, 3), m.unit(2, 3)],
  );

  it.each(checks)("%s", (_, fn, inputs) => {
    using generator = g(11);
    scope(() => {
      const make: Make = {
        normal: (...shape) => randn(shape, { generator, dtype: "float64" }),
        unit: (...shape) => rand(shape, { generator, dtype: "float64" }).mul(0.7).add(0.2),
      };
      const made = inputs(make);
      // Losses whose targets are data: only the first input is differentiated.
      const data = /^(binary|kl)/u.test(_);
      if (data) checkGradient((x) => fn(x as Tensor, made[1] as Tensor), made.slice(0, 1));
      else checkGradient(fn, made);
    });
  });

  it("finds a wrong gradient", () => {
    scope(() => {
      // detach() hides one of the two factors from autograd: half of the derivative is missing.
      expect(() =>
        checkGradient(
          (x) => (x as Tensor).mul((x as Tensor).detach()),
          [arange(1, 4, 1, { dtype: "float64" })],
        ),
      ).toThrow(/autograd gives .* central differences/u);
    });
  });
});
