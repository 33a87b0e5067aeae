import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { liveTensors } from "@astra-rl/torch";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { loadSequenceClassifier, type LoadedClassifier } from "../src/checkpoint.js";
import { classifierRow, classLogits } from "../src/class-logits.js";
import { published, publishedFolder } from "./golden/published.js";

const sigmoid = (logits: readonly number[]) => logits.map((logit) => 1 / (1 + Math.exp(-logit)));
const worst = (one: readonly (readonly number[])[], other: readonly (readonly number[])[]) =>
  Math.max(
    ...one.flatMap((row, index) => row.map((value, label) => Math.abs(value - other[index]![label]!))),
  );

describe.each(published)("the published classifier $variant", ({ folder, rows }) => {
  const texts = rows.map(({ text }) => text);
  let before: number;
  let classifier: LoadedClassifier;
  beforeAll(async () => {
    before = liveTensors();
    classifier = await loadSequenceClassifier(folder);
  });
  afterAll(() => {
    classifier.model.dispose();
    expect(liveTensors()).toBe(before);
  });

  it("gives the probabilities of transformers' pipeline, truncated and in mixed batches", () => {
    const logits = classLogits(classifier, texts, { batchSize: 7 });
    expect(
      worst(
        logits.map(sigmoid),
        rows.map((row) => row.sigmoid),
      ),
    ).toBeLessThan(1e-5);
  });

  it("reads as many tokens", () => {
    const read = texts.map((text) => classifierRow(classifier.model, classifier.tokenizer, text).length);
    expect(read).toEqual(rows.map(({ tokens }) => tokens));
    expect(Math.max(...read)).toBe(512);
  });

  it("gives a text the same logits in any batch", () => {
    const alone = texts.map((text) => classLogits(classifier, [text])[0]!);
    for (const batchSize of [1, 5, 64]) {
      expect(worst(classLogits(classifier, texts, { batchSize }), alone)).toBeLessThan(1e-5);
    }
    const backwards = classLogits(classifier, [...texts].reverse(), { batchSize: 5 });
    expect(worst(backwards.reverse(), alone)).toBeLessThan(1e-5);
  });

  it("leaves no tensor behind", () => {
    const held = liveTensors();
    classLogits(classifier, texts);
    expect(classLogits(classifier, [])).toEqual([]);
    expect(liveTensors()).toBe(held);
  });
});

describe("truncation", () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "class-logits-"));
    cpSync(publishedFolder("original"), folder, { recursive: true });
  });
  afterAll(() => rmSync(folder, { recursive: true }));
  const rowWith = async (settings: object, text: string) => {
    writeFileSync(join(folder, "tokenizer_config.json"), JSON.stringify(settings));
    const { model, tokenizer } = await loadSequenceClassifier(folder);
    const row = classifierRow(model, tokenizer, text);
    model.dispose();
    return { row, prefix: tokenizer.prefixIds, suffix: tokenizer.suffixIds, ids: tokenizer.encode(text) };
  };

  it("truncates the text, not its special tokens, on the side that the tokenizer specifies", async () => {
    const text = "the quick brown fox jumps over";
    const right = await rowWith({ model_max_length: 8 }, text);
    expect(right.ids.length).toBeGreaterThan(6);
    expect(right.row).toEqual([...right.prefix, ...right.ids.slice(0, 6), ...right.suffix]);
    const left = await rowWith({ model_max_length: 8, truncation_side: "left" }, text);
    expect(left.row).toEqual([...left.prefix, ...left.ids.slice(-6), ...left.suffix]);
  });

  it("falls back to the context length if the tokenizer specifies no length, or a larger one", async () => {
    const text = "a ".repeat(2000);
    for (const settings of [{}, { model_max_length: 1e30 }, { model_max_length: "long" }]) {
      expect((await rowWith(settings, text)).row).toHaveLength(512);
    }
  });
});

it("refuses an empty batch", async () => {
  const classifier = await loadSequenceClassifier(publishedFolder("original"));
  for (const batchSize of [0, -1, 1.5, NaN]) {
    expect(() => classLogits(classifier, ["a"], { batchSize })).toThrow(
      breaking("out-of-range", "batchSize"),
    );
  }
  classifier.model.dispose();
});

it("reads pickled weights like safetensors", async () => {
  const bytes = readFileSync(join(publishedFolder("unbiased"), "pytorch_model.bin"));
  // The format from before PyTorch 1.6, not a zip archive.
  expect(bytes.subarray(0, 2).toString("hex")).toBe("8002");
  const { model, unusedTensors } = await loadSequenceClassifier(publishedFolder("unbiased"));
  expect(unusedTensors).toEqual([]);
  model.dispose();
});
