import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { UsageError } from "@astra-rl/base";
import { breaking } from "../../base/test/support/breaking.js";
import {
  AdamW,
  createOptimizer,
  noGrad,
  scope,
  SGD,
  tensor,
  type Optimizer,
  type OptimizerName,
  type ParameterList,
  type Tensor,
} from "../src/index.js";
import { expectClose } from "./expect-close.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

interface Case {
  name: OptimizerName;
  options: Record<string, unknown>;
  group: Record<string, unknown>;
  /** Both parameters after each step. */
  trajectory: [number[], number[]][];
}

const golden = JSON.parse(readFileSync(new URL("./golden/optim-groups.json", import.meta.url), "utf8")) as {
  cases: Case[];
};

const numbers = (value: Tensor) => Array.from(value.detach().toTypedArray(), Number);

const begin = () => [
  tensor([0.5, -1, 2], { requiresGrad: true }),
  tensor([[1.5, -0.25]], { requiresGrad: true }),
];

/** The gradients of the golden script: 0.3 · parameter + sin(3 · step + index + i). */
function setGradients(parameters: readonly Tensor[], step: number): void {
  for (const [index, parameter] of parameters.entries()) {
    const values = numbers(parameter).map((value, i) => 0.3 * value + Math.sin(3 * step + index + i));
    parameter.grad = tensor(values, { shape: parameter.shape });
  }
}

/** Steps with both rates scaled by 1 / (1 + step), as a schedule does. */
function advance(
  optimizer: Optimizer,
  parameters: readonly Tensor[],
  rates: readonly number[],
  step: number,
): void {
  scope(() => {
    setGradients(parameters, step);
    optimizer.groups.forEach((group, index) => (group.learningRate = rates[index]! / (1 + step)));
    optimizer.step();
    optimizer.zeroGrad();
  });
}

const grouped = ([first, second]: readonly Tensor[], group: Record<string, unknown>): ParameterList => [
  { parameters: [first!] },
  { parameters: [second!], ...group },
];

describe("groups of parameters", () => {
  it.each(golden.cases)("$name: each follows its own settings and rate, as in PyTorch", (each) => {
    for (const fused of each.name.startsWith("adam") ? [true, false] : [null]) {
      scope(() => {
        const parameters = begin();
        const options = { ...each.options, ...(fused === null ? {} : { fused }) };
        const optimizer = createOptimizer(each.name, grouped(parameters, each.group), options);
        const rates = [each.options, each.group].map(({ learningRate }) => learningRate as number);
        expect(optimizer.groups.map(({ learningRate }) => learningRate)).toEqual(rates);
        for (const [step, expected] of each.trajectory.entries()) {
          advance(optimizer, parameters, rates, step);
          expect(optimizer.learningRate).toBe(rates[0]! / (1 + step));
          parameters.forEach((parameter, at) => expectClose(numbers(parameter), expected[at]!, 2e-6));
        }
        optimizer.dispose();
      });
    }
  });

  it("one group is bitwise equal to the optimizer without groups", () => {
    scope(() => {
      const [plain, one] = [begin(), begin()];
      const optimizers = [
        new AdamW(plain, { learningRate: 0.05 }),
        new AdamW([{ parameters: one }], { learningRate: 0.05 }),
      ];
      for (let step = 0; step < 3; step++) {
        advance(optimizers[0]!, plain, [0.05], step);
        advance(optimizers[1]!, one, [0.05], step);
      }
      expect(one.map(numbers)).toEqual(plain.map(numbers));
      const [a, b] = optimizers.map((optimizer) => optimizer.stateDict());
      expect({ ...a, tensors: [...a!.tensors.keys()] }).toEqual({ ...b, tensors: [...b!.tensors.keys()] });
      expect("groups" in a!).toBe(false);
      for (const optimizer of optimizers) optimizer.dispose();
    });
  });

  it.each(golden.cases)("$name: continues exactly from its saved state", (each) => {
    scope(() => {
      const rates = [each.options, each.group].map(({ learningRate }) => learningRate as number);
      const make = (parameters: readonly Tensor[]) =>
        createOptimizer(each.name, grouped(parameters, each.group), each.options);
      const whole = begin();
      const never = make(whole);
      for (let step = 0; step < 4; step++) advance(never, whole, rates, step);

      const first = begin();
      const stopped = make(first);
      for (let step = 0; step < 2; step++) advance(stopped, first, rates, step);
      const state = stopped.stateDict();
      const kept = { ...state, ...(JSON.parse(JSON.stringify({ ...state, tensors: undefined })) as object) };
      const second = begin();
      noGrad(() => second.forEach((parameter, at) => parameter.copy_(first[at]!)));
      const resumed = make(second);
      resumed.loadStateDict(kept);
      expect(resumed.groups.map(({ learningRate }) => learningRate)).toEqual(rates.map((rate) => rate / 2));
      for (let step = 2; step < 4; step++) advance(resumed, second, rates, step);
      expect(second.map(numbers)).toEqual(whole.map(numbers));
      for (const optimizer of [never, stopped, resumed]) optimizer.dispose();
    });
  });

  it("are refused if invalid, with a reason", () => {
    scope(() => {
      const [a, b] = begin();
      const refusal = (list: ParameterList, options = {}) => {
        try {
          createOptimizer("adamw", list, options).dispose();
        } catch (error) {
          expect(error).toBeInstanceOf(UsageError);
          return (error as Error).message;
        }
        return "";
      };
      expect(refusal([{ parameters: [a!] }, { parameters: [a!] }])).toContain(
        '"0" and "1" are the same tensor',
      );
      expect(refusal([{ parameters: [a!], momentum: 1 }])).toContain('unknown option "momentum"');
      expect(refusal([{ parameters: [a!], learningRate: -1 }])).toContain(
        "learningRate: must be a finite number ≥ 0",
      );
      expect(refusal([{ parameters: [] }])).toContain("no parameters to optimise");
      const twice = (tensors: Tensor) => ({ parameters: new Map([["x", tensors]]) });
      expect(refusal([twice(a!), twice(b!)])).toContain('two groups have a parameter "x"');

      const one = new SGD([a!]);
      const two = new SGD([{ parameters: [a!] }, { parameters: [b!] }]);
      expect(() => one.loadStateDict(two.stateDict())).toThrow(breaking("group-count-mismatch", "sgd state"));
      const nesterov = { parameters: [b!], nesterov: true };
      expect(() => new SGD([{ parameters: [a!] }, nesterov])).toThrow(
        breaking("nesterov-without-momentum", "sgd nesterov"),
      );
    });
  });
});

it.each([
  ["sgd", {}, 1, 0],
  ["sgd", { momentum: 0.9 }, 2, 1],
  ["adagrad", {}, 2, 1],
  ["rmsprop", {}, 2, 1],
  ["adam", {}, 3, 2],
  ["adamw", {}, 3, 2],
] as const)(
  "%s %o: %i numbers for each parameter are to come, gradients among them",
  (name, options, all, slots) => {
    scope(() => {
      const parameters = begin();
      const optimizer = createOptimizer(name, parameters, { learningRate: 0.1, ...options });
      // Five float32 numbers.
      expect(optimizer.bytesToCome()).toBe(20 * all);
      setGradients(parameters, 0);
      expect(optimizer.bytesToCome()).toBe(20 * slots);
      optimizer.step();
      expect(optimizer.bytesToCome()).toBe(0);
      optimizer.zeroGrad();
      expect(optimizer.bytesToCome()).toBe(20);
      optimizer.dispose();
    });
  },
);
