import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import {
  linear,
  liveTensors,
  maxMemoryAllocated,
  memoryAllocated,
  noGrad,
  resetPeakMemoryStats,
  scope,
  tensor,
  type Tensor,
} from "@astra-rl/torch";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  initializeGPT2,
  loadCausalLM,
  LoRA,
  tokenLogprobs,
  tokenOutputs,
  type CausalLM,
  type ReadHead,
  type ScoredRow,
  type TokenOutputs,
  type TokenOutputsOptions,
} from "../src/index.js";
import { SeededStream } from "../../base/test/support/seeded-stream.js";

interface Golden {
  inputs: [number[], number[]][];
  families: Record<
    string,
    {
      rows: Record<"logprobs" | "entropy" | "head", number[]>[];
      gradients: Record<string, { norm: number; first: number[] }>;
    }
  >;
}

const place = (name: string) => fileURLToPath(new URL(`golden/${name}`, import.meta.url));
const golden = JSON.parse(readFileSync(place("token-outputs.json"), "utf8")) as Golden;
const given: ScoredRow[] = golden.inputs.map(([context, continuation]) => ({ context, continuation }));
const NAMES = ["logprobs", "entropy", "head"] as const;

/** A tree (shared prefixes, a repeated row, a row inside another), an empty row and a separate row. */
const beginning = [5, 9, 20, 17, 33, 8, 41];
const tree: ScoredRow[] = [
  { context: beginning, continuation: [31, 12, 13] },
  { context: beginning, continuation: [31, 19] },
  { context: beginning, continuation: [] },
  { context: [...beginning, 31, 12], continuation: [13, 14] },
  { context: beginning, continuation: [31, 19] },
  { context: [50], continuation: [51, 2] },
];

/** The weights of the golden script's head: sin(i + 1) / √D, bias 0.25. The caller disposes of the weights. */
function makeHead({ config: { hiddenSize }, computeDtype }: CausalLM) {
  const values = Array.from({ length: hiddenSize }, (_, i) => Math.sin(i + 1) / Math.sqrt(hiddenSize));
  const dtype = computeDtype === "float64" ? "float64" : "float32";
  const weight = tensor([values], { dtype });
  const bias = tensor([0.25], { dtype });
  const head: ReadHead = (states) => linear(states.to(dtype), weight, bias).squeeze(-1);
  return { head, weights: [weight, bias] };
}

const numbers = (outputs: TokenOutputs) =>
  Object.fromEntries(NAMES.map((name) => [name, outputs[name]!.detach().toArray() as number[][]]));

/** The golden script's sum, whose weights distinguish all numbers. */
function loss(outputs: TokenOutputs): Tensor {
  const [rows, columns] = outputs.logprobs.shape as [number, number];
  const cosines = Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (__, k) => Math.cos(k + row)),
  );
  const weights = tensor(cosines, { dtype: outputs.logprobs.dtype });
  const { logprobs, entropy, head } = outputs;
  return logprobs.mul(0.5).add(entropy!).add(head!.mul(2)).mul(weights).sum();
}

function gradients(parameters: ReadonlyMap<string, Tensor>, compute: () => Tensor): Map<string, number[]> {
  for (const parameter of parameters.values()) parameter.requiresGrad_();
  scope(() => compute().backward());
  const found = new Map<string, number[]>();
  for (const [name, parameter] of parameters) {
    found.set(name, Array.from(parameter.grad!.toTypedArray(), Number));
    parameter.grad!.dispose();
    parameter.grad = null;
  }
  return found;
}

function largest(a: Iterable<number>, b: Iterable<number>): number {
  const [left, right] = [[...a], [...b]];
  expect(left.length).toBe(right.length);
  return Math.max(0, ...left.map((value, at) => Math.abs(value - right[at]!)));
}

let before = 0;
beforeEach(() => void (before = liveTensors()));
afterEach(() => expect(liveTensors()).toBe(before));

describe.each(Object.keys(golden.families))("tokenOutputs of %s", (family) => {
  it("equals transformers: log-probabilities, entropy, a head's input, and all gradients", async () => {
    const { model } = await loadCausalLM(place(family));
    const { head, weights } = makeHead(model);
    const expected = golden.families[family]!;
    const found = noGrad(() => scope(() => numbers(tokenOutputs(model, given, { entropy: true, head }))));
    for (const [row, { continuation }] of given.entries()) {
      for (const name of NAMES) {
        const got = found[name]![row]!;
        expect(largest(got.slice(0, continuation.length), expected.rows[row]![name]), name).toBeLessThan(
          2e-4,
        );
        expect(got.slice(continuation.length).every((value) => value === 0)).toBe(true);
      }
    }
    const parameters = model.namedParameters();
    const grads = gradients(parameters, () => loss(tokenOutputs(model, given, { entropy: true, head })));
    for (const [name, { norm, first }] of Object.entries(expected.gradients)) {
      const got = grads.get(name)!;
      expect(Math.hypot(...got) / norm, name).toBeCloseTo(1, 3);
      expect(largest(got.slice(0, first.length), first) / norm, name).toBeLessThan(1e-4);
    }
    expect(Object.keys(expected.gradients).sort()).toEqual([...parameters.keys()].sort());
    for (const weight of weights) weight.dispose();
    model.dispose();
  });
});

describe("tokenOutputs in float64", () => {
  const sizes = { vocabSize: 53, contextLength: 32, hiddenSize: 16, layers: 2, heads: 2, eosId: 0 };
  let model: CausalLM;
  let adapted: CausalLM;
  let adapter: LoRA;
  let head: ReadHead;
  let weights: Tensor[];
  beforeEach(() => {
    const single = initializeGPT2(sizes, 3);
    model = single.copy("float64");
    single.dispose();
    adapter = LoRA.create(
      model.projections(),
      { rank: 2, alpha: 4, targetModules: ["c_attn", "c_proj"] },
      { seed: 1 },
    );
    noGrad(() => {
      for (const matrix of adapter.namedParameters().values()) matrix.add_(0.1);
    });
    adapted = model.withAdapter(adapter);
    ({ head, weights } = makeHead(model));
    before = liveTensors();
  });
  afterEach(() => {
    adapter.dispose();
    model.dispose();
    for (const weight of weights) weight.dispose();
    before = 0;
  });

  it.each([
    ["all weights", false],
    ["an adapter", true],
  ])("packed = one by one, with gradient checkpointing too, training %s", (_, low) => {
    const lm = low ? adapted : model;
    const parameters = low ? adapter.namedParameters() : model.namedParameters();
    const run = (options: TokenOutputsOptions) => {
      const all = { entropy: true, head, ...options };
      const values = noGrad(() => scope(() => numbers(tokenOutputs(lm, tree, all))));
      return { values, grads: gradients(parameters, () => loss(tokenOutputs(lm, tree, all))) };
    };
    const reference = run({ packed: false, tokenBudget: 1 });
    // The adapter is float32, so its gradients are rounded to float32.
    const tolerance = low ? 1e-5 : 1e-10;
    for (const options of [{}, { tokenBudget: 9 }, { gradientCheckpointing: true }] as const) {
      const { values, grads } = run(options);
      for (const name of NAMES) {
        expect(largest(values[name]!.flat(), reference.values[name]!.flat()), name).toBeLessThan(1e-10);
      }
      for (const [name, values] of grads) {
        expect(largest(values, reference.grads.get(name)!), name).toBeLessThan(tolerance);
      }
    }
    expect([...reference.grads.values()].flat().some((value) => Math.abs(value) > 1e-2)).toBe(true);
  });

  it("has the gradients of finite differences, of entropies alone and of the head's input alone", () => {
    const parameters = [...model.namedParameters().values()];
    const stream = new SeededStream(2, "directions");
    const directions = parameters.map((parameter) =>
      tensor(
        Float64Array.from({ length: parameter.numel() }, () => stream.integer(2000) / 1000 - 1),
        { shape: parameter.shape },
      ),
    );
    for (const name of ["entropy", "head"] as const) {
      const value = () => loss({ ...zeroed(tokenOutputs(model, tree, { entropy: true, head }), name) });
      const grads = [...gradients(model.namedParameters(), value).values()];
      const along = grads.reduce(
        (sum, gradient, at) =>
          sum +
          Array.from(directions[at]!.toTypedArray(), Number).reduce((dot, d, i) => dot + d * gradient[i]!, 0),
        0,
      );
      const move = (by: number) =>
        noGrad(() => parameters.forEach((parameter, at) => parameter.add_(directions[at]!, { alpha: by })));
      const at = (by: number) => {
        move(by);
        const result = noGrad(() => scope(() => value().item()));
        move(-by);
        return result;
      };
      const differences = (at(1e-5) - at(-1e-5)) / 2e-5;
      expect(Math.abs(along)).toBeGreaterThan(1e-3);
      expect(Math.abs(along - differences) / Math.abs(along), name).toBeLessThan(1e-6);
    }
    for (const direction of directions) direction.dispose();
  });
});

/** Outputs of which only one contributes to the sum. */
function zeroed(outputs: TokenOutputs, kept: (typeof NAMES)[number]): TokenOutputs {
  const parts = NAMES.map((name) => [name, name === kept ? outputs[name]! : outputs[name]!.mul(0)]);
  return Object.fromEntries(parts) as unknown as TokenOutputs;
}

it("log-probabilities are bitwise the same with any other outputs, and only requested outputs are present", () => {
  for (const dtype of ["float32", "bfloat16"] as const) {
    const whole = initializeGPT2(
      { vocabSize: 53, contextLength: 32, hiddenSize: 16, layers: 2, heads: 2, eosId: 0 },
      3,
    );
    const model = whole.copy(dtype);
    const { head, weights } = makeHead(model);
    scope(() => {
      const plain = tokenLogprobs(model, tree);
      for (const options of [{}, { entropy: true }, { head }, { entropy: true, head }]) {
        const outputs = tokenOutputs(model, tree, options);
        expect(outputs.logprobs.toArray()).toEqual(plain.toArray());
        const wanted = [
          "logprobs",
          ...("entropy" in options ? ["entropy"] : []),
          ...("head" in options ? ["head"] : []),
        ];
        expect(Object.keys(outputs).sort()).toEqual(wanted.sort());
      }
    });
    for (const weight of weights) weight.dispose();
    model.dispose();
    whole.dispose();
  }
});

it("the entropy of an update adds little memory to that of its log-probabilities", () => {
  const vocabSize = 30_000;
  const model = initializeGPT2(
    { vocabSize, contextLength: 300, hiddenSize: 16, layers: 1, heads: 2, eosId: 0 },
    1,
  );
  const parameters = model.namedParameters();
  for (const parameter of parameters.values()) parameter.requiresGrad_();
  const stream = new SeededStream(5, "entropy");
  const ids = (length: number) => Array.from({ length }, () => stream.integer(vocabSize));
  const rows = [{ context: ids(2), continuation: ids(290) }];
  const peak = (entropy: boolean) => {
    resetPeakMemoryStats();
    const start = memoryAllocated();
    scope(() => {
      const outputs = tokenOutputs(model, rows, { entropy });
      (entropy ? outputs.logprobs.add(outputs.entropy!) : outputs.logprobs).mean().backward();
    });
    return maxMemoryAllocated() - start;
  };
  peak(true);
  const [plain, both] = [peak(false), peak(true)];
  const ofLogits = 290 * vocabSize * 4;
  // One gradient of the logits' size, and blocks of a fixed size; naive operators would keep two more.
  expect((both - plain) / ofLogits, `${plain / 2 ** 20} and ${both / 2 ** 20} MiB`).toBeLessThan(2.2);
  for (const parameter of parameters.values()) parameter.grad = null;
  model.dispose();
});
