import { describe, expect, it } from "vitest";
import {
  dispose,
  Dropout,
  Embedding,
  full,
  Generator,
  LayerNorm,
  Linear,
  liveTensors,
  Module,
  normalInitialiser,
  onesInitialiser,
  scope,
  tensor,
  uniformInitialiser,
  UsageError,
  type Tensor,
} from "../src/index.js";
import { expectClose } from "./expect-close.js";

/** A fixed value for a parameter; so outputs can be computed by hand. */
const fixed = (values: number[]) => (shape: readonly number[], options: object) =>
  tensor(values, { shape, ...options });

class Network extends Module {
  readonly input: Linear;
  readonly dropout: Dropout;
  readonly output: Linear;
  constructor(generator: Generator) {
    super();
    this.input = this.registerModule("input", new Linear(2, 3, { generator }));
    this.dropout = this.registerModule("dropout", new Dropout(0.5, generator));
    this.output = this.registerModule("output", new Linear(3, 1, { generator, bias: false }));
  }
}

const values = (tensors: Iterable<Tensor>) => [...tensors].map((t) => Array.from(t.toTypedArray(), Number));

describe("Module", () => {
  it("names its parameters by path, in order", () => {
    using generator = new Generator(1);
    using network = new Network(generator);
    expect([...network.namedParameters()].map(([name, t]) => [name, t.shape])).toEqual([
      ["input.weight", [3, 2]],
      ["input.bias", [3]],
      ["output.weight", [1, 3]],
    ]);
    expect([...network.children().keys()]).toEqual(["input", "dropout", "output"]);
    expect(network.parameters().every((parameter) => parameter.requiresGrad)).toBe(true);
  });

  it("hands train and eval down", () => {
    using generator = new Generator(1);
    using network = new Network(generator);
    expect([network.training, network.dropout.training]).toEqual([true, true]);
    network.eval();
    expect([network.training, network.dropout.training]).toEqual([false, false]);
    network.train();
    expect(network.dropout.training).toBe(true);
  });

  it("keeps its parameters beyond the scope it was made in, and frees them on dispose", () => {
    const before = liveTensors();
    using generator = new Generator(1);
    const network = scope(() => [new Network(generator)])[0]!;
    expect(liveTensors()).toBe(before + 3);
    expect(network.input.weight.numel()).toBe(6);
    network.dispose();
    expect(liveTensors()).toBe(before);
  });

  it("lists tied weights once", () => {
    class Tied extends Module {
      constructor(readonly inner: Linear) {
        super();
        this.registerModule("first", inner);
        this.registerParameter("again", inner.weight);
      }
    }
    using generator = new Generator(1);
    using tied = new Tied(new Linear(2, 2, { generator }));
    expect([...tied.namedParameters().keys()]).toEqual(["again", "first.bias"]);
  });

  it("loads values by name, converting the dtype, or refuses all of them", () => {
    scope(() => {
      using generator = new Generator(1);
      using layer = new Linear(2, 1, { generator });
      const start = values(layer.parameters());
      const weight = tensor([[1, 2]], { dtype: "float64" });
      const bias = tensor([3]);
      const load = (entries: [string, Tensor][]) => () => layer.loadParameters(new Map(entries));
      expect(load([["weight", weight]])).toThrow(new UsageError("Linear parameters: missing bias"));
      expect(
        load([
          ["weight", weight],
          ["bias", bias],
          ["x", bias],
          ["y", bias],
        ]),
      ).toThrow(new UsageError("Linear parameters: there is no x, no y"));
      expect(
        load([
          ["weight", weight],
          ["bias", weight],
        ]),
      ).toThrow(new UsageError("Linear parameters: bias must have shape [1], got [1, 2]"));
      expect(values(layer.parameters())).toEqual(start);
      load([
        ["bias", bias],
        ["weight", weight],
      ])();
      expect(values(layer.parameters())).toEqual([[1, 2], [3]]);
      expect(layer.weight.dtype).toBe("float32");
    });
  });

  it("refuses a name twice", () => {
    class Twice extends Module {
      constructor() {
        super();
        this.registerParameter("weight", tensor([1]));
        this.registerParameter("weight", tensor([1]));
      }
    }
    scope(() => expect(() => new Twice()).toThrow(UsageError));
  });
});

describe("layers compute what their definition says", () => {
  it("Linear: x Wᵀ + b, and its gradient", () => {
    scope(() => {
      const layer = new Linear(2, 3, { weight: fixed([1, 2, 3, 4, 5, 6]), bias: fixed([10, 20, 30]) });
      const output = layer.forward(
        tensor([
          [1, -1],
          [2, 0.5],
        ]),
      );
      expect(output.toArray()).toEqual([
        [9, 19, 29],
        [13, 28, 43],
      ]);
      output.sum().backward();
      // d/dW of the sum: each row of W sees the sum of the inputs; d/db counts the rows.
      expect(layer.weight.grad!.toArray()).toEqual([
        [3, -0.5],
        [3, -0.5],
        [3, -0.5],
      ]);
      expect(layer.bias!.grad!.toArray()).toEqual([2, 2, 2]);
      layer.dispose();
    });
  });

  it("Embedding: rows by number; the gradient goes to the rows that were used", () => {
    scope(() => {
      const table = new Embedding(3, 2, { weight: fixed([1, 2, 3, 4, 5, 6]) });
      const output = table.forward(tensor([[2, 0, 2]], { dtype: "int64" }));
      expect(output.toArray()).toEqual([
        [
          [5, 6],
          [1, 2],
          [5, 6],
        ],
      ]);
      output.sum().backward();
      expect(table.weight.grad!.toArray()).toEqual([
        [1, 1],
        [0, 0],
        [2, 2],
      ]);
      expect(() => table.forward(tensor([3], { dtype: "int64" }))).toThrow("out of range");
      table.dispose();
    });
  });

  it("LayerNorm: mean 0 and variance 1 over the last dimension, then scale and shift", () => {
    scope(() => {
      using layer = new LayerNorm(4, { epsilon: 0, dtype: "float64" });
      layer.loadParameters(
        new Map([
          ["weight", tensor([1, 2, 3, 4])],
          ["bias", tensor([0, 0, 0, 1])],
        ]),
      );
      // [1, 2, 3, 4] has mean 2.5 and variance 1.25.
      const s = Math.sqrt(1.25);
      const expected = [-1.5 / s, (-0.5 / s) * 2, (0.5 / s) * 3, (1.5 / s) * 4 + 1];
      expectClose(
        layer.forward(tensor([[1, 2, 3, 4]], { dtype: "float64" })).toTypedArray(),
        expected,
        1e-12,
      );
    });
  });

  it("Dropout: keeps the mean, follows its seed, is the identity in inference", () => {
    scope(() => {
      const input = full([100, 100], 3);
      const draw = (seed: number) => {
        using generator = new Generator(seed);
        return Array.from(new Dropout(0.25, generator).forward(input).toTypedArray(), Number);
      };
      const first = draw(5);
      expect(new Set(first)).toEqual(new Set([0, 4]));
      const kept = first.filter((x) => x !== 0).length / first.length;
      // 10,000 draws: the standard deviation of the share is 0.0043; six of them either way.
      expect(Math.abs(kept - 0.75)).toBeLessThan(0.026);
      expect(draw(5)).toEqual(first);
      expect(draw(6)).not.toEqual(first);
      using generator = new Generator(0);
      expect(new Dropout(0.25, generator).eval().forward(input)).toBe(input);
      expect(new Dropout(0, generator).forward(input)).toBe(input);
      expect(new Dropout(1, generator).forward(input).abs().max().item()).toBe(0);
    });
  });
});

describe("initial values", () => {
  it("normal and uniform follow their seed and have the moments asked for", () => {
    scope(() => {
      const options = { dtype: "float32", device: "cpu" } as const;
      const moments = (t: Tensor) => {
        const list = Array.from(t.toTypedArray(), Number);
        const mean = list.reduce((a, b) => a + b, 0) / list.length;
        const variance = list.reduce((a, b) => a + (b - mean) ** 2, 0) / list.length;
        return { mean, std: Math.sqrt(variance), list };
      };
      const drawNormal = (seed: number) =>
        moments(
          normalInitialiser({ generator: new Generator(seed), mean: 2, std: 0.5 })([100, 200], options),
        );
      const drawUniform = (seed: number) =>
        moments(
          uniformInitialiser({ generator: new Generator(seed), low: -1, high: 3 })([100, 200], options),
        );
      for (const [draw, mean, std] of [
        [drawNormal, 2, 0.5],
        [drawUniform, 1, 4 / Math.sqrt(12)],
      ] as const) {
        const first = draw(0);
        // 20,000 draws: standard error of the mean std / 141; six of them.
        expect(Math.abs(first.mean - mean)).toBeLessThan(0.043 * std);
        expect(Math.abs(first.std - std)).toBeLessThan(0.03 * std);
        expect(draw(0).list).toEqual(first.list);
        expect(draw(1).list).not.toEqual(first.list);
      }
      const { list } = drawUniform(3);
      expect(Math.min(...list)).toBeGreaterThanOrEqual(-1);
      expect(Math.max(...list)).toBeLessThan(3);
      expect(onesInitialiser([2], options).toArray()).toEqual([1, 1]);
    });
  });

  it("draws of Linear stay within 1/√inputs and fill that range", () => {
    using generator = new Generator(4);
    using layer = new Linear(16, 64, { generator });
    const list = Array.from(layer.weight.toTypedArray(), Number);
    expect(Math.max(...list.map(Math.abs))).toBeLessThanOrEqual(0.25);
    expect(Math.max(...list)).toBeGreaterThan(0.24);
    expect(Math.min(...list)).toBeLessThan(-0.24);
  });

  it.each([
    [() => new Linear(2, 3), "Linear: give a seeded generator"],
    [() => new Linear(0, 3), "Linear inputs: must be a whole number ≥ 1, got 0"],
    [() => new Linear(2, 1.5), "Linear outputs: must be a whole number ≥ 1, got 1.5"],
    [() => new Embedding(3, 2), "Embedding: give a seeded generator"],
    [() => new LayerNorm(-1), "LayerNorm size: must be a whole number ≥ 1, got -1"],
    [() => new Dropout(1.5, new Generator(0)), "Dropout: the probability must lie in [0, 1], got 1.5"],
    [() => new Dropout(Number.NaN, new Generator(0)), "Dropout: the probability must lie in [0, 1], got NaN"],
    [
      () => normalInitialiser({ generator: new Generator(0), std: -1 }),
      "normalInitialiser: mean must be finite and std ≥ 0",
    ],
    [
      () => uniformInitialiser({ generator: new Generator(0), low: 1, high: 0 }),
      "uniformInitialiser: low must be at most high",
    ],
  ])("refuses what makes no layer (%#)", (make, message) => {
    const before = liveTensors();
    expect(make).toThrow(UsageError);
    expect(make).toThrow(message);
    expect(liveTensors()).toBe(before);
    dispose([]);
  });
});
