import { describe, expect, it } from "vitest";
import { TorchError } from "@astra-rl/base";
import { addon } from "../src/native.js";
import { scope, tensor, type Tensor } from "../src/index.js";

// Arguments that the optimizers never pass: the native loops read raw memory, so each of these must be refused.
describe("the native optimizer loop refuses", () => {
  const row = (values: number[], dtype: "float32" | "float64" = "float32") => tensor(values, { dtype });
  const handles = (...tensors: Tensor[]) => tensors.map(({ handle }) => handle);
  const step = (lists: unknown[][], steps: unknown) => () =>
    (addon().fusedAdam as (...values: unknown[]) => void)(...lists, steps, 0.1, 0.9, 0.99, 1e-8, 0, true);
  const four = () => [row([1, 2]), row([1, 2]), row([1, 2]), row([1, 2])] as const;

  const cases: [string, () => () => void, string][] = [
    [
      "lists of different lengths",
      () => {
        const [p, g, m] = four();
        return step([handles(p), handles(g), handles(m), []], [1]);
      },
      "equally long",
    ],
    [
      "a gradient of another size",
      () => {
        const [p, , m, v] = four();
        return step([handles(p), handles(row([1, 2, 3])), handles(m), handles(v)], [1]);
      },
      "must lie alike and apart",
    ],
    [
      "a gradient that is the parameter",
      () => {
        const [p, , m, v] = four();
        return step([handles(p), handles(p), handles(m), handles(v)], [1]);
      },
      "must lie alike and apart",
    ],
    [
      "another dtype",
      () => {
        const [p, g, m] = four();
        return step([handles(p), handles(g), handles(m), handles(row([1, 2], "float64"))], [1]);
      },
      "expAvgSqs[0] must be a dense float32 tensor on the CPU, got float64[2]",
    ],
    [
      "strides",
      () => {
        const [, g, m, v] = four();
        const column = tensor([
          [1, 2],
          [3, 4],
        ]).select(1, 0);
        return step([handles(column), handles(g), handles(m), handles(v)], [1]);
      },
      "parameters[0] must be a dense",
    ],
    [
      "null for a tensor",
      () => {
        const [p, , m, v] = four();
        return step([handles(p), [null], handles(m), handles(v)], [1]);
      },
      "gradients[0] must not be null",
    ],
    ["a handle that was never issued", () => step([[1e15], [1e15], [1e15], [1e15]], [1]), "fusedAdam"],
    [
      "step 0",
      () => {
        const [p, g, m, v] = four();
        return step([handles(p), handles(g), handles(m), handles(v)], [0]);
      },
      "steps[0] must be at least 1",
    ],
    [
      "steps that are no list",
      () => {
        const [p, g, m, v] = four();
        return step([handles(p), handles(g), handles(m), handles(v)], "x");
      },
      "steps must be an array",
    ],
    [
      "a step that is text",
      () => {
        const [p, g, m, v] = four();
        return step([handles(p), handles(g), handles(m), handles(v)], ["1"]);
      },
      "steps",
    ],
    ["too few arguments", () => () => (addon().fusedAdam as () => void)(), "parameters"],
    [
      "another dtype for the norm",
      () => () => addon().gradientNorm(handles(row([1], "float64"))),
      "gradients[0] must be a dense float32 tensor",
    ],
    ["no list for the norm", () => () => (addon().gradientNorm as (x: unknown) => number)(5), "gradients"],
  ];
  it.each(cases)("%s", (_, prepare, message) => {
    scope(() => {
      const action = prepare();
      expect(action).toThrow(TorchError);
      expect(action).toThrow(message);
    });
  });

  it("but accepts empty lists and empty tensors", () => {
    scope(() => {
      expect(step([[], [], [], []], [])).not.toThrow();
      expect(addon().gradientNorm([])).toBe(0);
      const empty = () => tensor(new Float32Array(0));
      expect(
        step([handles(empty()), handles(empty()), handles(empty()), handles(empty())], [1]),
      ).not.toThrow();
    });
  });
});
