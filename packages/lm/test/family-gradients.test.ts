/** Gradients and low-rank updates computed by transformers; made by golden/make_gradients.py. */
import { liveTensors, noGrad, scope, tensor, type DType, type Tensor } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { loadCausalLM, LoRA, tokenLogprobs, type CausalLM } from "../src/index.js";
import { goldenCausal } from "./golden/families.js";
import { difference, goldenGradients, summary } from "./golden/gradients.js";

const { rows, rank, scale, models } = goldenGradients;

/** 0.1 · cos(step · i), row by row. */
function pattern(shape: readonly number[], step: number): Tensor {
  const [height, width] = shape as [number, number];
  const values = Float64Array.from({ length: height * width }, (_, at) => 0.1 * Math.cos(step * at));
  return tensor(values, { shape: [height, width] });
}

function backward(model: CausalLM, gradientCheckpointing = false): number[][] {
  return scope(() => {
    const table = tokenLogprobs(model, rows, { gradientCheckpointing });
    table.sum().neg().backward();
    return table.toArray() as number[][];
  });
}

let before: number;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

it("golden gradients exist for every causal family", () => {
  expect(Object.keys(models).sort()).toEqual(goldenCausal.map(({ name }) => name).sort());
});

const types: [dtype: DType, within: number][] = [
  ["float64", 2e-6],
  ["float32", 1e-4],
];

describe.each(goldenCausal)("the causal model $name", ({ name, folder }) => {
  const expected = models[name]!;

  it.each(types)("has transformers' gradients in %s", async (dtype, within) => {
    const { model } = await loadCausalLM(folder, { dtype });
    const parameters = model.namedParameters();
    for (const parameter of parameters.values()) parameter.requiresGrad_();
    for (const gradientCheckpointing of [false, true]) {
      backward(model, gradientCheckpointing);
      expect([...parameters.keys()].sort()).toEqual(Object.keys(expected.gradients).sort());
      for (const [key, parameter] of parameters) {
        expect(difference(summary(parameter.grad!), expected.gradients[key]!), key).toBeLessThan(within);
        parameter.grad = null;
      }
    }
    model.dispose();
  });

  it("has transformers' log-probabilities and gradients with an adapter", async () => {
    const { model } = await loadCausalLM(folder);
    const { targetModules, logprobs, gradients } = expected.lora;
    const configuration = { rank, alpha: scale * rank, targetModules };
    const adapter = LoRA.create(model.projections(), configuration, { seed: 0 });
    const named = adapter.namedParameters();
    noGrad(() =>
      scope(() => {
        for (const [key, matrix] of named)
          matrix.copy_(pattern(matrix.shape, key.endsWith("lora_A.weight") ? 1 : 0.7));
      }),
    );
    const adapted = model.withAdapter(adapter);
    const found = backward(adapted);
    logprobs.forEach((row, at) =>
      row.forEach((value, k) => expect(Math.abs(value - found[at]![k]!)).toBeLessThan(2e-4)),
    );
    expect(named.size).toBe(2 * Object.keys(gradients).length);
    for (const [module, { a, b }] of Object.entries(gradients)) {
      const grad = (part: string) => named.get(`base_model.model.${module}.lora_${part}.weight`)!.grad!;
      expect(difference(summary(grad("A")), a), module).toBeLessThan(1e-4);
      expect(difference(summary(grad("B")), b), module).toBeLessThan(1e-4);
    }
    adapter.dispose();
    model.dispose();
  });
});
