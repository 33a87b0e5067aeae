import { dispose, liveTensors, manualSeed, noGrad, scope, type Tensor } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { initializeCausalLM, LoRA, tokenLogprobs, type CausalLM, type ScoredRow } from "../src/index.js";
import { smallModels } from "./support/small-models.js";

/** A tree (shared prefixes, so a mask) and a separate row. */
const shared = [3, 9, 27, 28, 31, 40, 17, 51];
const rows: ScoredRow[] = [
  { context: shared, continuation: [5, 15, 45] },
  { context: shared, continuation: [5, 16, 48, 38, 8] },
  { context: [...shared, 7, 21], continuation: [10] },
  { context: [2], continuation: [4, 8, 16, 32, 11, 22] },
];

let before: number;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

interface Result {
  loss: number;
  gradients: Map<string, number[]>;
}

/** Loss and gradients of a nonlinear function of the log-probabilities; gradients are cleared afterwards. */
function update(
  model: CausalLM,
  parameters: ReadonlyMap<string, Tensor>,
  gradientCheckpointing: boolean,
  packed = true,
): Result {
  const loss = scope(() => {
    const table = tokenLogprobs(model, rows, { gradientCheckpointing, packed });
    const total = table.sum([-1]).mul(0.1).sigmoid().log().neg().mean();
    total.backward();
    return total.item();
  });
  const gradients = new Map<string, number[]>();
  for (const [name, parameter] of parameters) {
    gradients.set(name, Array.from(parameter.grad!.toTypedArray() as Float64Array));
    parameter.grad = null;
  }
  return { loss, gradients };
}

function expectEqual(actual: Result, expected: Result, within: number): void {
  expect(Math.abs(actual.loss - expected.loss)).toBeLessThan(within);
  expect([...actual.gradients.keys()]).toEqual([...expected.gradients.keys()]);
  for (const [name, values] of expected.gradients) {
    const found = actual.gradients.get(name)!;
    const worst = Math.max(...values.map((value, at) => Math.abs(value - found[at]!)));
    expect(worst, name).toBeLessThan(within);
  }
}

describe.each(smallModels)("gradient checkpointing of %s", (_, settings, targetModules) => {
  it("gives the loss and every gradient of the plain update in float64", () => {
    const model = initializeCausalLM(settings, 3, { dtype: "float64" });
    for (const parameter of model.namedParameters().values()) parameter.requiresGrad_();
    for (const packed of [true, false]) {
      const plain = update(model, model.namedParameters(), false, packed);
      const checkpointed = update(model, model.namedParameters(), true, packed);
      expectEqual(checkpointed, plain, 1e-10);
      const moved = [...plain.gradients.values()].filter((values) => values.some((value) => value !== 0));
      expect(moved).toHaveLength(plain.gradients.size);
    }
    model.dispose();
  });

  it("trains an adapter with dropout over a frozen base: the same masks, the same gradients", () => {
    const model = initializeCausalLM(settings, 4);
    const adapter = LoRA.create(
      model.projections(),
      { rank: 2, alpha: 4, targetModules, dropout: 0.3 },
      { seed: 6 },
    );
    noGrad(() => {
      for (const parameter of adapter.namedParameters().values()) parameter.add_(0.05);
    });
    const adapted = model.withAdapter(adapter);
    /** As in training of a tester: in training mode while the loss is computed, but not during the backward pass. */
    const run = (gradientCheckpointing: boolean, seed: number): Result =>
      scope(() => {
        manualSeed(seed);
        adapter.training = true;
        const table = tokenLogprobs(adapted, rows, { gradientCheckpointing });
        adapter.training = false;
        const loss = table.square().mean();
        loss.backward();
        const gradients = new Map<string, number[]>();
        for (const [name, parameter] of adapter.namedParameters()) {
          gradients.set(name, Array.from(parameter.grad!.toTypedArray() as Float32Array));
          parameter.grad = null;
        }
        return { loss: loss.item(), gradients };
      });
    const plain = run(false, 1);
    expectEqual(run(true, 1), plain, 1e-4);
    expect(run(true, 2).loss).not.toBe(plain.loss);
    for (const parameter of model.namedParameters().values()) expect(parameter.grad).toBeNull();
    dispose([...adapter.namedParameters().values()]);
    model.dispose();
  });

  it("is of no effect without gradients", () => {
    const model = initializeCausalLM(settings, 5);
    const values = [false, true].map((gradientCheckpointing) =>
      noGrad(() => scope(() => tokenLogprobs(model, rows, { gradientCheckpointing }).toArray())),
    );
    expect(values[1]).toEqual(values[0]);
    model.dispose();
  });
});
