import { describe, expect, it } from "vitest";
import { UsageError } from "@astra-rl/base";
import {
  Adagrad,
  Adam,
  AdamW,
  createOptimizer,
  optimizerNames,
  RMSprop,
  scope,
  SGD,
  tensor,
  type OptimizerName,
  type OptimizerState,
} from "../src/index.js";
import { expectClose } from "./expect-close.js";

const make = (name: string, options: Record<string, unknown> = {}) =>
  scope(() => createOptimizer(name as OptimizerName, [tensor([1, 2], { requiresGrad: true })], options).name);

/** The message, after checking that it is a UsageError, which the command line maps to exit code 2. */
function refusal(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError);
    return (error as UsageError).message;
  }
  return expect.fail("was accepted");
}

describe("createOptimizer", () => {
  it("creates every optimizer by name", () => {
    expect(optimizerNames).toEqual(["adam", "adamw", "sgd", "rmsprop", "adagrad"]);
    expect(optimizerNames.map((name) => make(name))).toEqual(optimizerNames);
  });

  it.each(["AdamW", "lion", "", "toString", "__proto__"])(
    "refuses the name %j and lists those that exist",
    (name) => {
      expect(refusal(() => make(name))).toBe(
        `optimizer: unknown name ${JSON.stringify(name)}; available: adam, adamw, sgd, rmsprop, adagrad`,
      );
    },
  );
});

describe("a second argument that is not an object", () => {
  const classes = { adam: Adam, adamw: AdamW, sgd: SGD, rmsprop: RMSprop, adagrad: Adagrad };

  it.each(optimizerNames)("of %s is refused with a remedy: PyTorch takes the learning rate there", (name) => {
    const parameters = () => [tensor([1, 2], { requiresGrad: true })];
    const given = (options: unknown) =>
      scope(() => refusal(() => new classes[name](parameters(), options as never)));
    const rule = `${name}: the second argument must be an object of options, got`;
    expect(given(1e-5)).toBe(`${rule} 0.00001; write { learningRate: 0.00001 }`);
    expect(given("1e-5")).toBe(`${rule} "1e-5"; write { learningRate: … }`);
    expect(given(null)).toBe(`${rule} null; write { learningRate: … }`);
    expect(given([1e-5])).toContain(rule);
  });
});

describe("hyper-parameters out of range", () => {
  it.each([
    ["adam", { learningRate: Number.NaN }, "adam learningRate: must be a finite number ≥ 0, got NaN"],
    ["sgd", { learningRate: -1 }, "sgd learningRate: must be a finite number ≥ 0, got -1"],
    ["sgd", { learningRate: Infinity }, "sgd learningRate: must be a finite number ≥ 0, got Infinity"],
    ["adamw", { learningRate: "1e-3" }, 'adamw learningRate: must be a finite number ≥ 0, got "1e-3"'],
    ["adamw", { learningRate: null }, "adamw learningRate: must be a finite number ≥ 0, got null"],
    ["adam", { betas: [-0.1, 0.9] }, "adam betas[0]: must be a number in [0, 1), got -0.1"],
    ["adam", { betas: [0.9, 1] }, "adam betas[1]: must be a number in [0, 1), got 1"],
    ["adam", { betas: [0.9] }, "adam betas: must be two numbers in [0, 1), got [0.9]"],
    ["adam", { betas: 0.9 }, "adam betas: must be two numbers in [0, 1), got 0.9"],
    ["adamw", { epsilon: -1e-8 }, "adamw epsilon: must be a finite number ≥ 0, got -1e-8"],
    ["adamw", { weightDecay: -0.1 }, "adamw weightDecay: must be a finite number ≥ 0, got -0.1"],
    ["adamw", { amsgrad: 1 }, "adamw amsgrad: must be true or false, got 1"],
    ["adamw", { fused: "yes" }, 'adamw fused: must be true or false, got "yes"'],
    ["sgd", { momentum: -0.5 }, "sgd momentum: must be a finite number ≥ 0, got -0.5"],
    ["rmsprop", { alpha: 1 }, "rmsprop alpha: must be a number in [0, 1), got 1"],
    [
      "adagrad",
      { learningRateDecay: Number.NaN },
      "adagrad learningRateDecay: must be a finite number ≥ 0, got NaN",
    ],
    [
      "adagrad",
      { initialAccumulatorValue: -1 },
      "adagrad initialAccumulatorValue: must be a finite number ≥ 0, got -1",
    ],
  ])("%s %o", (name, options, message) => {
    expect(refusal(() => make(name, options))).toBe(message);
  });

  it("refuses an option that does not exist and lists those that do", () => {
    expect(refusal(() => make("sgd", { lr: 0.1 }))).toBe(
      'sgd: unknown option "lr"; available: learningRate, momentum, dampening, weightDecay, nesterov',
    );
  });

  it.each([{ nesterov: true }, { nesterov: true, momentum: 0.9, dampening: 0.1 }])(
    "refuses Nesterov without plain momentum: %o",
    (options) => {
      expect(refusal(() => make("sgd", options))).toContain(
        "sgd nesterov: needs momentum > 0 and dampening 0",
      );
    },
  );

  it("checks a learning rate that is set later, and keeps the old one", () => {
    scope(() => {
      using optimizer = new Adam([tensor([1], { requiresGrad: true })], { learningRate: 0.25 });
      expect(refusal(() => (optimizer.learningRate = Number.NaN))).toContain("adam learningRate");
      expect(optimizer.learningRate).toBe(0.25);
    });
  });
});

describe("parameters", () => {
  it("must exist, require a gradient and differ", () => {
    scope(() => {
      const weight = tensor([1], { requiresGrad: true });
      expect(refusal(() => new SGD([]))).toBe("sgd: there are no parameters to optimise");
      expect(refusal(() => new SGD([tensor([1])]))).toBe('sgd: parameter "0" does not require a gradient');
      expect(
        refusal(
          () =>
            new SGD(
              new Map([
                ["a", weight],
                ["b", weight],
              ]),
            ),
        ),
      ).toBe('sgd: parameters "a" and "b" are the same tensor');
    });
  });

  it("without a gradient stay unchanged, even with weight decay", () => {
    scope(() => {
      const [used, unused] = [tensor([1], { requiresGrad: true }), tensor([1], { requiresGrad: true })];
      using optimizer = new AdamW([used, unused], { learningRate: 0.1, weightDecay: 0.5 });
      used.grad = tensor([1]);
      optimizer.step();
      // By hand: 1 · (1 − 0.1 · 0.5) − 0.1 · 1 / (1 + 1e-8)
      expectClose(used.toTypedArray(), [0.85], 1e-6);
      expect(unused.item()).toBe(1);
      expect(optimizer.stateDict().steps).toEqual({ 0: 1 });
      optimizer.zeroGrad();
      expect(used.grad).toBeNull();
    });
  });
});

describe("loadStateDict", () => {
  const state = (): OptimizerState => ({
    name: "adamw",
    hyperparameters: { learningRate: 0.1, betas: [0.9, 0.99], epsilon: 1e-8, weightDecay: 0, amsgrad: false },
    steps: { weight: 3 },
    tensors: new Map([
      ["weight.expAvg", tensor([0.1, 0.2])],
      ["weight.expAvgSq", tensor([0.01, 0.04])],
    ]),
  });
  const cases: [string, (state: OptimizerState) => void, string][] = [
    ["another optimizer", (s) => (s.name = "adam"), 'adamw state: the saved state is of optimizer "adam"'],
    ["an unknown parameter", (s) => (s.steps = { bias: 1 }), 'adamw state: it has a parameter "bias" that'],
    [
      "a missing tensor",
      (s) => s.tensors.delete("weight.expAvg"),
      'adamw state: tensor "weight.expAvg" is missing',
    ],
    ["a tensor too many", (s) => s.tensors.set("x", tensor([1])), 'adamw state: unexpected tensor "x"'],
    [
      "another shape",
      (s) => s.tensors.set("weight.expAvg", tensor([1, 2, 3])),
      'adamw state: tensor "weight.expAvg" must be float32 [2], got float32 [3]',
    ],
    [
      "another dtype",
      (s) => s.tensors.set("weight.expAvg", tensor([1, 2], { dtype: "float64" })),
      'adamw state: tensor "weight.expAvg" must be float32 [2], got float64 [2]',
    ],
    [
      "a step count of 0",
      (s) => (s.steps.weight = 0),
      'adamw state: steps of "weight" must be a positive integer',
    ],
    [
      "a hyper-parameter out of range",
      (s) => (s.hyperparameters.betas = [0.9, 2]),
      "adamw state betas[1]: must be a number in [0, 1), got 2",
    ],
  ];
  it.each(cases)("refuses %s and changes nothing", (_, spoil, message) => {
    scope(() => {
      const weight = tensor([1, 2], { requiresGrad: true });
      using optimizer = new AdamW(new Map([["weight", weight]]), { learningRate: 0.5 });
      optimizer.loadStateDict(state());
      const spoilt = state();
      spoil(spoilt);
      expect(refusal(() => optimizer.loadStateDict(spoilt))).toContain(message);
      expect(optimizer.learningRate).toBe(0.1);
      expect(optimizer.stateDict().steps).toEqual({ weight: 3 });
      expectClose(optimizer.stateDict().tensors.get("weight.expAvg")!.toTypedArray(), [0.1, 0.2], 1e-7);
    });
  });
});
