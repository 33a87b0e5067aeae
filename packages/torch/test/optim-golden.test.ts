import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import {
  Adam,
  AdamW,
  clipGradNorm_,
  createOptimizer,
  dispose,
  liveTensors,
  openSafetensors,
  scope,
  tensor,
  writeSafetensors,
  type Optimizer,
  type OptimizerName,
  type Tensor,
} from "../src/index.js";
import { addon } from "../src/native.js";
import { expectClose } from "./expect-close.js";

// Trajectories computed by PyTorch: test/golden/make_optim.py.
type Values = Record<string, number[]>;
interface Case {
  name: OptimizerName;
  options: Record<string, unknown>;
  learningRates: number[] | null;
  float64: Values[];
  float32: Record<string, Values>;
}
interface Golden {
  shapes: Record<string, number[]>;
  initial: Values;
  gradients: Record<string, number[] | null>[];
  cases: Case[];
}
const golden = JSON.parse(readFileSync(new URL("golden/optim.json", import.meta.url), "utf8")) as Golden;
const folder = mkdtempSync(join(tmpdir(), "optim-"));
afterAll(() => rmSync(folder, { recursive: true }));

const title = (c: Case) =>
  `${c.name} ${JSON.stringify(c.options)}${c.learningRates ? " with a schedule" : ""}`;

function makeParameters(dtype: "float32" | "float64", values: Values = golden.initial): Map<string, Tensor> {
  return new Map(
    Object.entries(golden.shapes).map(([name, shape]) => {
      const data = Float64Array.from(values[name]!);
      return [name, tensor(data, { shape, dtype, requiresGrad: true })];
    }),
  );
}

/** Performs the steps [from, to) and returns the parameters' values after each. */
function run(
  c: Case,
  optimizer: Optimizer,
  parameters: Map<string, Tensor>,
  from: number,
  to: number,
): Values[] {
  const trajectory: Values[] = [];
  for (let step = from; step < to; step += 1) {
    optimizer.zeroGrad();
    if (c.learningRates !== null) optimizer.learningRate = c.learningRates[step]!;
    for (const [name, parameter] of parameters) {
      const values = golden.gradients[step]![name]!;
      if (values === null) continue;
      const { shape, dtype } = parameter;
      parameter.grad = tensor(Float64Array.from(values), { shape, dtype });
    }
    optimizer.step();
    trajectory.push(valuesOf(parameters));
  }
  optimizer.zeroGrad();
  return trajectory;
}

function valuesOf(parameters: Map<string, Tensor>): Values {
  return Object.fromEntries(
    [...parameters].map(([name, parameter]) => [name, Array.from(parameter.toTypedArray(), Number)]),
  );
}

function expectTrajectory(got: Values, expected: Values, tolerance: number): void {
  for (const [name, values] of Object.entries(expected)) expectClose(got[name]!, values, tolerance);
}

describe("every optimizer follows PyTorch's trajectory", () => {
  it.each(golden.cases.map((c) => [title(c), c] as const))("float64: %s", (_, c) => {
    scope(() => {
      const parameters = makeParameters("float64");
      using optimizer = createOptimizer(c.name, parameters, c.options);
      const trajectory = run(c, optimizer, parameters, 0, 10);
      c.float64.forEach((expected, step) => expectTrajectory(trajectory[step]!, expected, 1e-12));
    });
  });

  it.each(golden.cases.map((c) => [title(c), c] as const))("float32: %s", (_, c) => {
    scope(() => {
      const parameters = makeParameters("float32");
      using optimizer = createOptimizer(c.name, parameters, c.options);
      const trajectory = run(c, optimizer, parameters, 0, 10);
      for (const [step, expected] of Object.entries(c.float32)) {
        expectTrajectory(trajectory[Number(step) - 1]!, expected, 1e-6);
      }
    });
  });
});

describe("saved and restored state", () => {
  it.each(golden.cases.map((c, index) => [title(c), c, index] as const))(
    "continues the identical trajectory from a file: %s",
    (_, c, index) => {
      scope(() => {
        const uninterrupted = makeParameters("float32");
        using whole = createOptimizer(c.name, uninterrupted, c.options);
        const expected = run(c, whole, uninterrupted, 0, 10);

        const before = makeParameters("float32");
        const path = join(folder, `${index}.safetensors`);
        let rest: string;
        {
          using first = createOptimizer(c.name, before, c.options);
          run(c, first, before, 0, 4);
          const { tensors, ...plain } = first.stateDict();
          writeSafetensors(path, tensors);
          rest = JSON.stringify(plain);
        }
        const after = makeParameters("float32", valuesOf(before));
        // Other hyper-parameters at first: the saved ones must take precedence.
        using second = createOptimizer(c.name, after, { learningRate: 0.5 });
        using file = openSafetensors(path);
        const tensors = new Map([...file.tensors.keys()].map((name) => [name, file.read(name)]));
        second.loadStateDict({
          ...(JSON.parse(rest) as Omit<ReturnType<Optimizer["stateDict"]>, "tensors">),
          tensors,
        });
        expect(run(c, second, after, 4, 10)).toEqual(expected.slice(4));
      });
    },
  );

  it("is copied when loaded: further training does not change the source", () => {
    scope(() => {
      const c = golden.cases.find(({ name }) => name === "adamw")!;
      const parameters = makeParameters("float32");
      using first = createOptimizer(c.name, parameters, c.options);
      run(c, first, parameters, 0, 3);
      const others = makeParameters("float32");
      using second = createOptimizer(c.name, others, c.options);
      const saved = first.stateDict();
      second.loadStateDict(saved);
      const value = saved.tensors.get("matrix.expAvg")!.toArray();
      run(c, second, others, 3, 6);
      expect(saved.tensors.get("matrix.expAvg")!.toArray()).toEqual(value);
    });
  });
});

describe("Adam and AdamW", () => {
  it.each([
    ["adam", Adam],
    ["adamw", AdamW],
  ])(
    "%s gives the same in one native pass as operator by operator, over sizes for several threads",
    (_, Kind) => {
      scope(() => {
        const sizes = [1, 7, 1000, 40_000, 70_001];
        const value = (seed: number, i: number) => Math.sin(seed * 12.9898 + i * 78.233) * 2;
        const make = () =>
          sizes.map((size, s) =>
            tensor(
              Float32Array.from({ length: size }, (_, i) => value(s, i)),
              { requiresGrad: true },
            ),
          );
        const [fused, general] = [make(), make()];
        const options = { learningRate: 0.01, weightDecay: 0.1, betas: [0.8, 0.9] as const };
        using one = new Kind(fused, options);
        using many = new Kind(general, { ...options, fused: false });
        for (let step = 0; step < 5; step += 1) {
          for (const parameters of [fused, general]) {
            parameters.forEach((parameter, s) => {
              const size = sizes[s]!;
              parameter.grad = tensor(Float32Array.from({ length: size }, (_, i) => value(s + 31 + step, i)));
            });
          }
          one.step();
          many.step();
        }
        for (const [index, parameter] of fused.entries()) {
          expectClose(parameter.toTypedArray(), general[index]!.toTypedArray(), 1e-6);
        }
        const slots = [one.stateDict().tensors, many.stateDict().tensors] as const;
        for (const [name, state] of slots[0]) {
          expectClose(state.toTypedArray(), slots[1].get(name)!.toTypedArray(), 1e-6);
        }
      });
    },
  );

  it("handle column-major parameters in the native pass, for any layout of gradients and saved state", () => {
    scope(() => {
      const value = (seed: number, i: number) => Math.sin(seed * 12.9898 + i * 78.233);
      const matrix = (seed: number, byColumn: boolean) => {
        const rows = tensor(
          Float32Array.from({ length: 6 }, (_, i) => value(seed, i)),
          { shape: [2, 3] },
        );
        return byColumn ? rows.t().contiguous().t() : rows;
      };
      const options = { learningRate: 0.1, weightDecay: 0.1 };
      const native = vi.spyOn(addon(), "fusedAdam");
      const run = (byColumn: boolean, gradientsByColumn: boolean) => {
        const parameter = matrix(1, byColumn).requiresGrad_();
        let optimizer = new AdamW([parameter], options);
        for (let step = 0; step < 4; step += 1) {
          parameter.grad = matrix(2 + step, gradientsByColumn);
          expect(clipGradNorm_([parameter], 0.5)).toBeGreaterThan(0.5);
          optimizer.step();
          if (step !== 1) continue;
          const resumed = new AdamW([parameter], options);
          resumed.loadStateDict(optimizer.stateDict());
          optimizer.dispose();
          optimizer = resumed;
        }
        const numbers = [parameter, ...optimizer.stateDict().tensors.values()];
        const all = numbers.flatMap((each) => [...each.toTypedArray()].map(Number));
        optimizer.dispose();
        return all;
      };
      const plain = run(false, false);
      expectClose(run(true, true), plain, 1e-6);
      expectClose(run(true, false), plain, 1e-6);
      expectClose(run(false, true), plain, 1e-6);
      expect(native).toHaveBeenCalledTimes(4 * 4);
      native.mockRestore();
    });
  });

  it("count steps of the native pass per parameter", () => {
    scope(() => {
      const run = (options: object) => {
        const [always, late] = [
          tensor([1, 2], { requiresGrad: true }),
          tensor([1, 2], { requiresGrad: true }),
        ];
        using optimizer = new AdamW([always, late], { learningRate: 0.1, ...options });
        for (let step = 0; step < 4; step += 1) {
          always.grad = tensor([0.5, -1]);
          late.grad = step < 2 ? null : tensor([0.25, 3]);
          optimizer.step();
        }
        expect(optimizer.stateDict().steps).toEqual({ 0: 4, 1: 2 });
        return [...always.toTypedArray(), ...late.toTypedArray()];
      };
      expectClose(run({}) as number[], run({ fused: false }) as number[], 1e-6);
    });
  });

  it("use operators for parameters that the native pass does not support, in the same step", () => {
    scope(() => {
      const plain = tensor(
        [
          [1, 2],
          [3, 4],
        ],
        { requiresGrad: true },
      );
      const strided = tensor([
        [1, 3],
        [2, 4],
      ])
        .transpose(0, 1)
        .requiresGrad_();
      const double = tensor(
        [
          [1, 2],
          [3, 4],
        ],
        { dtype: "float64", requiresGrad: true },
      );
      using optimizer = new AdamW([plain, strided, double], { learningRate: 0.1 });
      for (let step = 0; step < 3; step += 1) {
        plain.grad = tensor([
          [0.5, -1],
          [2, 0.1],
        ]);
        strided.grad = tensor([
          [0.5, -1],
          [2, 0.1],
        ]);
        double.grad = tensor(
          [
            [0.5, -1],
            [2, 0.1],
          ],
          { dtype: "float64" },
        );
        optimizer.step();
      }
      expectClose(plain.toTypedArray(), double.toTypedArray(), 1e-6);
      expectClose(strided.toTypedArray(), double.toTypedArray(), 1e-6);
    });
  });

  it("keep bfloat16 parameters close to the float64 trajectory", () => {
    scope(() => {
      const low = tensor([1, -2, 3], { dtype: "bfloat16" }).requiresGrad_();
      const high = tensor([1, -2, 3], { dtype: "float64", requiresGrad: true });
      using optimizer = new AdamW([low, high], { learningRate: 0.1 });
      for (let step = 0; step < 4; step += 1) {
        low.grad = tensor([1, 2, -0.5], { dtype: "bfloat16" });
        high.grad = tensor([1, 2, -0.5], { dtype: "float64" });
        optimizer.step();
      }
      expect(low.dtype).toBe("bfloat16");
      expectClose(low.toTypedArray(), high.toTypedArray(), 2e-2);
    });
  });
});

describe("memory", () => {
  it.each(golden.cases.map((c) => [title(c), c] as const))("a step leaves no tensor behind: %s", (_, c) => {
    const before = liveTensors();
    const parameters = makeParameters("float32");
    const optimizer = createOptimizer(c.name, parameters, c.options);
    // Every parameter has had a gradient, and so its state, after the second step.
    run(c, optimizer, parameters, 0, 2);
    const steady = liveTensors();
    for (let round = 0; round < 3; round += 1) run(c, optimizer, parameters, 2, 10);
    expect(liveTensors()).toBe(steady);
    optimizer.dispose();
    dispose([...parameters.values()]);
    expect(liveTensors()).toBe(before);
  });
});
