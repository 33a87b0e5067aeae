import { dispose, liveTensors, noGrad, scope, type DType, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import type { CausalLM } from "../src/causal-lm.js";
import { loadCausalLM } from "../src/checkpoint.js";
import { initializeGPT2 } from "../src/families/initialize.js";
import {
  contextThatFits,
  tokenLogprobs,
  type ScoredRow,
  type TokenLogprobsOptions,
} from "../src/logprobs.js";
import type { Tokenizer } from "../src/tokenizer.js";
import { goldenCausal } from "./golden/families.js";
import { golden, goldenFolder } from "./golden/gpt2.js";
import { largestDifference } from "./invariant.js";
import { referenceLogprobs } from "./reference-decoding.js";

const rows: ScoredRow[] = golden.logprobs.map(({ contextIds, continuationIds }) => ({
  context: contextIds,
  continuation: continuationIds,
}));

/** A tree as in preference training: siblings, cousins, repeated rows, a row that ends inside another. */
const tree: ScoredRow[] = (() => {
  const root = [5, 9, 200, 17, 33, 8, 61];
  const left = [...root, 71, 72, 73, 74];
  const right = [...root, 71, 99];
  return [
    { context: root, continuation: [71, 72, 73, 74] },
    { context: root, continuation: [71, 99] },
    { context: root, continuation: [] },
    { context: left, continuation: [12, 13, 14] },
    { context: left, continuation: [12, 40] },
    { context: left, continuation: [12, 13, 14] },
    { context: right, continuation: [3] },
    { context: root.slice(0, 3), continuation: [17, 33, 8] },
    { context: [250], continuation: [251, 252] },
  ];
})();

function values(model: CausalLM, given: readonly ScoredRow[], options?: TokenLogprobsOptions): number[][] {
  return noGrad(() => scope(() => tokenLogprobs(model, given, options).toArray())) as number[][];
}

/** Lone surrogates are not valid text: they become U+FFFD. */
const wellFormed = (text: string) => Buffer.from(text).toString();

/** Gradients of a weighted sum of the log-probabilities, with distinct weights, by parameter. */
function gradients(model: CausalLM, given: readonly ScoredRow[], options?: TokenLogprobsOptions) {
  const parameters = model.namedParameters();
  for (const parameter of parameters.values()) {
    parameter.requiresGrad_();
    parameter.grad = null;
  }
  scope(() => {
    const logprobs = tokenLogprobs(model, given, options);
    logprobs.mul(logprobs.detach().mul(0.1).sin()).sum().backward();
  });
  const result = new Map<string, number[]>();
  for (const [name, parameter] of parameters) {
    result.set(name, Array.from(parameter.grad!.toTypedArray(), Number));
    parameter.grad!.dispose();
    parameter.grad = null;
    parameter.requiresGrad_(false);
  }
  return result;
}

function expectClose(a: number[][], b: number[][], tolerance: number): void {
  expect(a.map((row) => row.length)).toEqual(b.map((row) => row.length));
  const difference = Math.max(
    0,
    ...a.flatMap((row, r) => row.map((value, k) => Math.abs(value - b[r]![k]!))),
  );
  expect(difference).toBeLessThan(tolerance);
}

function expectSameGradients(a: Map<string, number[]>, b: Map<string, number[]>, tolerance: number): void {
  expect([...a.keys()]).toEqual([...b.keys()]);
  for (const [name, values] of a) {
    const other = b.get(name)!;
    const scale = Math.max(1, ...values.map(Math.abs));
    const difference = Math.max(...values.map((value, at) => Math.abs(value - other[at]!)));
    expect(difference / scale, name).toBeLessThan(tolerance);
  }
}

describe("tokenLogprobs of the golden GPT-2", () => {
  let model: CausalLM;
  let double: CausalLM;
  let tokenizer: Tokenizer;
  let before: number;
  beforeAll(async () => {
    before = liveTensors();
    ({ model, tokenizer } = await loadCausalLM(goldenFolder));
    double = model.copy("float64");
  });
  afterAll(() => {
    model.dispose();
    double.dispose();
    expect(liveTensors()).toBe(before);
  });

  it.each(golden.logprobs)("equals transformers: $note", ({ context, continuation, logprobs }) => {
    const row = { context: tokenizer.encode(context), continuation: tokenizer.encode(continuation) };
    expectClose(values(model, [row]), [logprobs], 2e-4);
  });

  it("equals transformers in one batch, and is 0 beyond each row", () => {
    const longest = Math.max(...rows.map((row) => row.continuation.length));
    const expected = golden.logprobs.map(({ logprobs }) => [
      ...logprobs,
      ...Array.from({ length: longest - logprobs.length }, () => 0),
    ]);
    for (const packed of [true, false]) expectClose(values(model, rows, { packed }), expected, 2e-4);
  });

  it("has the gradients of transformers, through the whole model", () => {
    const parameters = model.namedParameters();
    for (const parameter of parameters.values()) parameter.requiresGrad_();
    scope(() => tokenLogprobs(model, rows).sum().backward());
    for (const [name, { norm, first }] of Object.entries(golden.gradients)) {
      const gradient = parameters.get(name)!.grad!;
      const got = Array.from(gradient.toTypedArray(), Number);
      expect(Math.hypot(...got) / norm, name).toBeCloseTo(1, 4);
      first.forEach((value, at) => expect(Math.abs(got[at]! - value) / norm, name).toBeLessThan(1e-5));
      parameters.get(name)!.requiresGrad_(false).grad = null;
      gradient.dispose();
    }
    expect(Object.keys(golden.gradients)).toEqual([...parameters.keys()]);
  });

  it.each<[DType, number, number]>([
    ["float32", 1e-5, 1e-5],
    ["float64", 1e-10, 1e-10],
  ])(
    "packed = unpacked = one by one, values and every gradient, in %s",
    (dtype, valueTolerance, tolerance) => {
      const lm = dtype === "float32" ? model : double;
      const scale = 10; // log-probabilities are around −10: float32 resolves 1e-6 of that
      const given = [...tree, ...rows];
      const packed = values(lm, given);
      expectClose(packed, values(lm, given, { packed: false }), scale * valueTolerance);
      expectClose(packed, values(lm, given, { packed: false, tokenBudget: 1 }), scale * valueTolerance);
      expectClose(packed, values(lm, given, { tokenBudget: 20 }), scale * valueTolerance);
      given.forEach((row, index) => {
        const alone = values(lm, [row])[0]!;
        expectClose([packed[index]!.slice(0, alone.length)], [alone], scale * valueTolerance);
        expect(packed[index]!.slice(alone.length).every((value) => value === 0)).toBe(true);
      });
      const reference = gradients(lm, given, { packed: false, tokenBudget: 1 });
      expectSameGradients(gradients(lm, given), reference, tolerance);
      expectSameGradients(gradients(lm, given, { packed: false }), reference, tolerance);
      expectSameGradients(gradients(lm, given, { tokenBudget: 20 }), reference, tolerance);
    },
  );

  it("processes each shared prefix once, and counts it", () => {
    const counters = { tokensRead: 0 };
    values(model, tree, { counters });
    const beginnings = new Set<string>();
    for (const { context, continuation } of tree) {
      if (continuation.length === 0) continue;
      const read = [...context, ...continuation.slice(0, -1)];
      read.forEach((_, end) => beginnings.add(read.slice(0, end + 1).join()));
    }
    expect(counters.tokensRead).toBe(beginnings.size);

    counters.tokensRead = 0;
    values(model, tree, { packed: false, counters });
    const all = tree.filter((row) => row.continuation.length > 0);
    expect(counters.tokensRead).toBe(
      all.reduce((sum, row) => sum + row.context.length + row.continuation.length - 1, 0),
    );
  });

  it("stays close to float32 with bfloat16 weights, products or both", async () => {
    const reference = values(model, rows).flat();
    const half = model.copy("bfloat16");
    const mixed = (await loadCausalLM(goldenFolder, { computeDtype: "bfloat16" })).model;
    const stored = (await loadCausalLM(goldenFolder, { dtype: "bfloat16", computeDtype: "float32" })).model;
    const scored = rows.reduce((sum, row) => sum + row.continuation.length, 0);
    for (const lm of [half, mixed, stored]) {
      const got = values(lm, rows).flat();
      const mean = got.reduce((sum, value, at) => sum + Math.abs(value - reference[at]!), 0) / scored;
      // The golden weights are ten times those of an untrained model, and so are their errors.
      expect(mean).toBeLessThan(2e-2);
    }
    const [name, weight] = [...mixed.namedParameters()].at(2)!;
    const exact = gradients(model, rows).get(name)!;
    const rounded = gradients(mixed, rows).get(name)!;
    expect(weight.dtype).toBe("float32");
    const error = Math.hypot(...exact.map((value, at) => value - rounded[at]!));
    expect(error / Math.hypot(...exact)).toBeLessThan(0.05);
    for (const lm of [half, mixed, stored]) lm.dispose();
  });

  it("stores [in, out] projections output-major, also in copies and gradients", () => {
    const [trained, half] = [model.copy("float32"), model.copy("bfloat16")];
    const lieByOutput = (of: CausalLM, pick: (parameter: Tensor) => Tensor) =>
      [...model.projections().keys()].map((name) =>
        scope(() => {
          const matrix = pick(of.namedParameters().get(`${name}.weight`)!).t(); // [out, in]
          return matrix.contiguous().sharesStorageWith(matrix);
        }),
      );
    for (const parameter of trained.namedParameters().values()) parameter.requiresGrad_();
    scope(() => tokenLogprobs(trained, rows).sum().backward());
    const all = Array.from(model.projections(), () => true);
    expect(all.length).toBeGreaterThan(0);
    for (const each of [model, half, trained]) {
      expect(lieByOutput(each, (parameter) => parameter)).toEqual(all);
    }
    expect(lieByOutput(trained, (parameter) => parameter.grad!)).toEqual(all);
    for (const lm of [trained, half]) lm.dispose();
  });

  it("refreshes a bfloat16 copy in place", () => {
    const changed = model.copy("float32");
    const copy = model.copy("bfloat16");
    const handles = [...copy.namedParameters().values()];
    noGrad(() => [...changed.namedParameters().values()][0]!.mul_(0.5));
    copy.copyFrom(changed);
    const fresh = changed.copy("bfloat16");
    expect([...copy.namedParameters().values()].every((tensor, at) => tensor === handles[at])).toBe(true);
    expect(values(copy, tree)).toEqual(values(fresh, tree));
    expect(values(copy, tree)).not.toEqual(values(model, tree));
    for (const lm of [changed, copy, fresh]) lm.dispose();
  });

  it("leaves no tensors behind", () => {
    const live = liveTensors();
    values(model, rows);
    gradients(model, tree);
    const result = tokenLogprobs(model, tree);
    expect(liveTensors()).toBe(live + 1);
    dispose(result);
  });

  it("gives finite log-probabilities ≤ 0 for any text", () => {
    const text = fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.string({ unit: "binary" }).map(wellFormed),
      fc.constantFrom("\u202eشلام", "e\u0301\u0316", "\u0000\u001b[2J", "🏳️‍🌈", ""),
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(text, text), { minLength: 1, maxLength: 4 }), (pairs) => {
        const given = pairs.map(([context, continuation]) => ({
          context: tokenizer.encode(context),
          continuation: tokenizer.encode(continuation).slice(0, golden.window - 1),
        }));
        const got = values(model, given);
        given.forEach((row, index) => {
          got[index]!.forEach((value, k) => {
            if (k < row.continuation.length) expect(Number.isFinite(value) && value <= 0).toBe(true);
            else expect(value).toBe(0);
          });
        });
      }),
      { numRuns: 60 },
    );
  });

  it.each<[string, ScoredRow, RegExp]>([
    [
      "an id outside the vocabulary",
      { context: [1], continuation: [320] },
      /row 0: .* from 0 to 319, got 320/,
    ],
    ["a negative id", { context: [-1], continuation: [3] }, /got -1/],
    ["an id that is not an integer", { context: [1], continuation: [0.5] }, /got 0\.5/],
    [
      "a continuation as long as the window",
      { context: [1], continuation: Array.from({ length: 64 }, () => 1) },
      /window of 64 tokens, but the continuation has 64/,
    ],
    [
      "a continuation that leaves no room for the pinned ids",
      { context: [1, 2, 3, 4], continuation: Array.from({ length: 61 }, () => 1), pinned: 4 },
      /and the 4 pinned tokens of context must fit the model's window of 64 tokens, but the continuation has 61/,
    ],
    [
      "pins that are not a number",
      { context: [1, 2], continuation: [1], pinned: 0.5 },
      /pinned must be .*0\.5/,
    ],
  ])("refuses %s", (_, row, message) => {
    expect(() => tokenLogprobs(model, [row])).toThrow(UsageError);
    expect(() => tokenLogprobs(model, [row])).toThrow(message);
  });

  it("truncates a long context after its pinned ids", () => {
    const context = Array.from({ length: 70 }, (_, at) => (7 * at) % 300);
    const continuation = [5, 6, 7];
    const cut = [...context.slice(0, 4), ...context.slice(-57)];
    const row = { context, continuation, pinned: 4 };
    expect(contextThatFits(model.config, row)).toEqual(cut);
    expect(values(model, [row])).toEqual(values(model, [{ context: cut, continuation }]));
    expect(contextThatFits(model.config, { ...row, context: [8], pinned: 4 })).toEqual([8]);
    const full = { context, continuation: context.slice(0, 60), pinned: 4 };
    expect(contextThatFits(model.config, full)).toEqual(context.slice(0, 4));
  });

  it("accepts zero rows, and rows with nothing to score", () => {
    expect(values(model, [])).toEqual([]);
    expect(values(model, [{ context: [3], continuation: [] }])).toEqual([[]]);
    const shape = scope(() => [...tokenLogprobs(model, [{ context: [], continuation: [] }]).shape]);
    expect(shape).toEqual([1, 0]);
  });
});

describe("tokenLogprobs of an untrained model", () => {
  const sizes = { vocabSize: 500, contextLength: 128, hiddenSize: 64, layers: 4, heads: 4 };
  let model: CausalLM;
  beforeAll(() => {
    model = initializeGPT2(sizes, 7);
  });
  afterAll(() => model.dispose());

  it("needs a token to replace an empty context", () => {
    expect(() => tokenLogprobs(model, [{ context: [], continuation: [1] }])).toThrow(
      breaking("empty-context"),
    );
  });

  it("is within 2e-2 of float32 in bfloat16, on average", () => {
    const given = tree.map(({ context, continuation }) => ({
      context,
      continuation: [...continuation, 1, 2, 3],
    }));
    const half = model.copy("bfloat16");
    const reference = values(model, given).flat();
    const mean =
      values(half, given)
        .flat()
        .reduce((sum, value, at) => sum + Math.abs(value - reference[at]!), 0) / reference.length;
    expect(mean).toBeLessThan(2e-2);
    half.dispose();
  });

  it("has initial weights that depend only on the seed", () => {
    const parameters = (lm: CausalLM) => [...lm.namedParameters()] as [string, Tensor][];
    const same = initializeGPT2(sizes, 7);
    const other = initializeGPT2(sizes, 8);
    parameters(same).forEach(([name, tensor], at) => {
      expect(largestDifference(tensor, parameters(model)[at]![1]), name).toBe(0);
    });
    expect(largestDifference(parameters(other)[0]![1], parameters(model)[0]![1])).toBeGreaterThan(0.01);
    for (const [name, tensor] of parameters(model)) {
      const numbers = Array.from(tensor.toTypedArray(), Number);
      const mean = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
      const deviation = Math.sqrt(
        numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / numbers.length,
      );
      const expected = name.endsWith("c_proj.weight") ? 0.02 / Math.sqrt(8) : 0.02;
      if (name.endsWith("bias"))
        expect(
          numbers.every((value) => value === 0),
          name,
        ).toBe(true);
      else if (name.includes(".ln_"))
        expect(
          numbers.every((value) => value === 1),
          name,
        ).toBe(true);
      else expect(deviation / expected, name).toBeCloseTo(1, 1);
    }
    same.dispose();
    other.dispose();
  });
});

describe("tokenLogprobs under a sliding window", () => {
  it("processes texts within and beyond the window in one pass like separate passes", async () => {
    const mistral = goldenCausal.find(({ name }) => name === "mistral")!; // a window of 8
    const { model } = await loadCausalLM(mistral.folder);
    try {
      expect(model.config.slidingWindow).toBe(8);
      const long = Array.from({ length: 14 }, (_, at) => 20 + 3 * at);
      const given: ScoredRow[] = [
        { context: [5, 9], continuation: [17, 33] },
        { context: long, continuation: [71, 72, 73] },
        { context: long, continuation: [71, 40] },
        { context: [8, 61, 12, 30, 31], continuation: [13] },
      ];
      // Without segments: the path that is compared with transformers.
      const alone = given.map(({ context, continuation }) => referenceLogprobs(model, context, continuation));
      const together = values(model, given).map((row, at) => row.slice(0, alone[at]!.length));
      expectClose(together, alone, 2e-5);
    } finally {
      model.dispose();
    }
  });
});
