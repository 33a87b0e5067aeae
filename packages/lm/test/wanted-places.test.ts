/** `places`: the last layer computes only the requested states, and they equal those of a full pass. */
import { liveTensors, noGrad, scope, tensor, type Tensor } from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Adapter } from "../src/adapters/adapter.js";
import { initializeCausalLM, type CausalLM, type ForwardOptions } from "../src/index.js";
import { smallModels } from "./support/small-models.js";

const [ROWS, LENGTH, HIDDEN] = [2, 7, 16];
/** Unordered, with repetitions. */
const PLACES = [12, 3, 6, 3];

let before: number;
beforeEach(() => (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

const whole = (values: readonly number[], shape: number[]) =>
  tensor(Int32Array.from(values), { dtype: "int64", shape });

function inputs(): [ids: Tensor, options: ForwardOptions] {
  const numbers = Array.from({ length: ROWS * LENGTH }, (_, at) => at);
  const ids = whole(
    numbers.map((at) => 2 + ((at * 17) % 50)),
    [ROWS, LENGTH],
  );
  const positions = whole(
    numbers.map((at) => at % LENGTH),
    [ROWS, LENGTH],
  );
  return [ids, { positions, mask: null }];
}

/** The requested states, from a pass that computes only these or all, and the gradients of a function of them. */
function read(model: CausalLM, alone: boolean, gradientCheckpointing: boolean) {
  return scope(() => {
    const [ids, given] = inputs();
    const options = { ...given, gradientCheckpointing };
    const places = whole(PLACES, [PLACES.length]);
    const states = alone
      ? model.forward(ids, { ...options, places })
      : model.forward(ids, options).reshape([1, -1, HIDDEN]).indexSelect(1, places);
    expect(states.shape).toEqual([1, PLACES.length, HIDDEN]);
    states.mul(states).sin().sum().backward();
    const gradients: Record<string, number[]> = {};
    for (const [name, parameter] of model.namedParameters()) {
      gradients[name] = Array.from(parameter.grad?.toTypedArray() ?? [], Number);
      parameter.grad = null;
    }
    return { states: Array.from(states.toTypedArray(), Number), gradients };
  });
}

const expectClose = (a: readonly number[], b: readonly number[]) => {
  expect(a).toHaveLength(b.length);
  a.forEach((value, at) => expect(Math.abs(value - b[at]!)).toBeLessThan(1e-11));
};

const [[, gpt2]] = smallModels as [(typeof smallModels)[number]];
const models = [
  ...smallModels,
  ["GPT-2 of one layer", { ...gpt2, n_layer: 1 }, []] as (typeof smallModels)[number],
];

describe.each(models)("%s", (_, settings) => {
  let model: CausalLM;
  beforeEach(() => {
    const made = initializeCausalLM(settings, 3);
    model = made.copy("float64");
    made.dispose();
    for (const parameter of model.namedParameters().values()) parameter.requiresGrad_(true);
  });
  afterEach(() => model.dispose());

  it.each([false, true])(
    "gives the states and gradients of a full pass, checkpointed: %s",
    (checkpointed) => {
      const [alone, all] = [read(model, true, checkpointed), read(model, false, checkpointed)];
      expectClose(alone.states, all.states);
      expect(
        Object.values(all.gradients)
          .flat()
          .some((value) => Math.abs(value) > 1e-3),
      ).toBe(true);
      for (const [name, values] of Object.entries(all.gradients)) expectClose(alone.gradients[name]!, values);
    },
  );

  it("computes nothing for other tokens after the last layer's attention", () => {
    const rowsRead = new Map<string, number>();
    const watching: Adapter = {
      training: false,
      parameters: () => [],
      namedParameters: () => new Map(),
      delta(projection, x) {
        rowsRead.set(projection, x.numel() / x.size(-1));
        return null;
      },
    };
    const view = model.withAdapter(watching);
    noGrad(() =>
      scope(() => {
        const [ids, options] = inputs();
        view.forward(ids, { ...options, places: whole([4], [1]) });
      }),
    );
    const names = [...rowsRead.keys()];
    const lastOutput = names.findLast((name) => /(attn\.(c_proj|o_proj)|attention\.dense)$/.test(name))!;
    for (const [name, rows] of rowsRead) {
      expect([name, rows]).toEqual([
        name,
        names.indexOf(name) >= names.indexOf(lastOutput) ? 1 : ROWS * LENGTH,
      ]);
    }
    expect(names.length - names.indexOf(lastOutput)).toBeGreaterThan(2);
  });
});
