import { liveTensors, noGrad, scope, tensor } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CausalLM } from "../src/causal-lm.js";
import { loadCausalLM, loadSequenceClassifier } from "../src/checkpoint.js";
import { tokenLogprobs } from "../src/logprobs.js";
import { goldenCausal, goldenClassifiers } from "./golden/families.js";

describe.each(goldenCausal)("the causal model $name", ({ name, folder, expected }) => {
  const rows = expected.pairs.map(({ contextIds, continuationIds }) => ({
    context: contextIds,
    continuation: continuationIds,
  }));
  const longest = Math.max(...rows.map((row) => row.continuation.length));
  const reference = expected.pairs.map(({ logprobs }) => [
    ...logprobs,
    ...Array.from({ length: longest - logprobs.length }, () => 0),
  ]);
  let model: CausalLM;
  let before: number;
  beforeAll(async () => {
    before = liveTensors();
    ({ model } = await loadCausalLM(folder));
  });
  afterAll(() => {
    model.dispose();
    expect(liveTensors()).toBe(before);
  });
  const values = (lm: CausalLM, given: typeof rows, packed: boolean) =>
    noGrad(() => scope(() => tokenLogprobs(lm, given, { packed }).toArray())) as number[][];
  const worst = (a: number[][], b: number[][]) =>
    Math.max(...a.flatMap((row, r) => row.map((value, k) => Math.abs(value - b[r]![k]!))));

  it("gives transformers' log-probabilities in float32", () => {
    expect(worst(values(model, rows, false), reference)).toBeLessThan(2e-4);
  });

  it("computes the same packed as row by row, sliding windows included", () => {
    const shared = rows[0]!.context;
    const tree = [
      ...rows,
      ...rows.map((row) => ({
        context: [...shared, ...row.context].slice(0, 40),
        continuation: row.continuation.slice(0, 7),
      })),
    ];
    expect(worst(values(model, tree, true), values(model, tree, false))).toBeLessThan(5e-5);
    expect(
      worst(values(model, tree, true), tree.map((row) => values(model, [row], false)[0]!).map(padded)),
    ).toBeLessThan(5e-5);
    function padded(row: number[]): number[] {
      return [...row, ...Array.from({ length: longest - row.length }, () => 0)];
    }
  });

  it("stays close to them in bfloat16", () => {
    const half = model.copy("bfloat16");
    const got = values(half, rows, true);
    const differences = got.flatMap((row, r) => row.map((value, k) => Math.abs(value - reference[r]![k]!)));
    const scored = rows.reduce((sum, row) => sum + row.continuation.length, 0);
    const mean = differences.reduce((sum, value) => sum + value, 0) / scored;
    expect(mean, name).toBeLessThan(2e-2);
    half.dispose();
  });

  it("computes the same greedy tokens without a cache", () => {
    for (const { ids, greedy } of expected.greedy.slice(0, 4)) {
      const chosen: number[] = [];
      while (chosen.length < greedy.length) {
        const next = noGrad(() =>
          scope(() => {
            const read = [...ids, ...chosen];
            const positions = tensor(Int32Array.from(read.keys())).to("int64").view([1, -1]);
            const input = tensor(Int32Array.from(read)).to("int64").view([1, -1]);
            const hidden = model.forward(input, { positions, mask: null });
            return model
              .logits(hidden.select(1, read.length - 1))
              .argmax(-1)
              .item();
          }),
        );
        chosen.push(next);
      }
      expect(chosen).toEqual(greedy);
    }
  });
});

describe.each(goldenClassifiers)("the classifier $name", ({ folder, expected }) => {
  it("gives transformers' logits, in one padded batch and alone", async () => {
    const before = liveTensors();
    const { model, tokenizer } = await loadSequenceClassifier(folder);
    const { rows, maxLength } = expected;
    const widest = Math.max(...rows.map((row) => row.ids.length));
    const classify = (given: number[][], width: number) =>
      noGrad(() =>
        scope(() => {
          const ids = Int32Array.from(
            given.flatMap((row) => [
              ...row,
              ...Array.from({ length: width - row.length }, () => model.config.padId),
            ]),
          );
          const mask = Uint8Array.from(
            given.flatMap((row) => Array.from({ length: width }, (_, at) => Number(at < row.length))),
          );
          const shape = [given.length, width];
          return model
            .forward(tensor(ids).to("int64").view(shape), tensor(mask, { dtype: "bool", shape }))
            .toArray();
        }),
      ) as number[][];
    const together = classify(
      rows.map((row) => row.ids),
      widest,
    );
    rows.forEach(({ text, ids, logits }, row) => {
      expect(
        tokenizer.encode(text, { addSpecialTokens: true }).length >= ids.length || ids.length === maxLength,
      ).toBe(true);
      const alone = classify([ids], ids.length)[0]!;
      logits.forEach((value, label) => {
        expect(Math.abs(together[row]![label]! - value), text).toBeLessThan(1e-4);
        expect(Math.abs(alone[label]! - value), text).toBeLessThan(1e-4);
      });
    });
    model.dispose();
    expect(liveTensors()).toBe(before);
  });
});
