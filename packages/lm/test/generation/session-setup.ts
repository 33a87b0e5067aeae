/** Shared by the tests of sessions: golden models, random texts, comparisons. */
import { liveTensors } from "@astra-rl/torch";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import type { DrawKey } from "@astra-rl/base";
import {
  GenerationSession,
  loadCausalLM,
  type CausalLM,
  type Generation,
  type SessionOptions,
  type Tokenizer,
} from "../../src/index.js";
import { goldenCausal } from "../golden/families.js";
import { goldenFolder } from "../golden/gpt2.js";
import { referenceLogprobs } from "../reference-decoding.js";
import { SeededStream } from "../../../base/test/support/seeded-stream.js";

const families = ["gemma3", "gpt-neox", "mistral", "qwen3", "smollm3"];

export const goldenModels = [
  ["gpt2", goldenFolder],
  ...goldenCausal.flatMap(({ name, folder }) => (families.includes(name) ? [[name, folder] as const] : [])),
] as const;

export const stream = new SeededStream(11, "texts");

/** The model of a folder for the tests of a `describe`, each of which must leave no tensors. */
export function useGolden(folder: string) {
  let start = 0;
  let before = 0;
  const golden = {
    model: undefined as unknown as CausalLM,
    tokenizer: undefined as unknown as Tokenizer,
    randomIds: (length: number, vocabulary: number) =>
      Array.from({ length }, () => 1 + stream.integer(vocabulary - 1)),
    open: (prompts: readonly (readonly number[])[], options: SessionOptions = {}) =>
      GenerationSession.open(golden.model, golden.tokenizer, prompts, options),
    prompts: (lengths: readonly number[]) =>
      lengths.map((length) => golden.randomIds(length, golden.model.config.vocabSize)),
  };
  beforeAll(async () => {
    start = liveTensors();
    Object.assign(golden, await loadCausalLM(folder));
    // Tensors that a model creates at its first use (rotary tables) exist before the count starts.
    referenceLogprobs(golden.model, [1], [2]);
  });
  afterAll(() => {
    golden.model.dispose();
    expect(liveTensors()).toBe(start);
  });
  beforeEach(() => (before = liveTensors()));
  afterEach(() => expect(liveTensors()).toBe(before));
  return golden;
}

export const keysOf = (count: number, episode = 0): DrawKey[] =>
  Array.from({ length: count }, (_, node) => ({ seed: 5, stream: "tester", episode, node }));

export function expectClose(
  actual: readonly (readonly number[])[],
  expected: readonly (readonly number[])[],
  within = 1e-5,
) {
  expect(actual.map((row) => row.length)).toEqual(expected.map((row) => row.length));
  actual.forEach((row, at) =>
    row.forEach((value, token) => expect(Math.abs(value - expected[at]![token]!)).toBeLessThan(within)),
  );
}

/** Two generations have the same texts; only the last digits of float32 may differ. */
export function expectSame(actual: Generation, expected: Generation): void {
  expect(actual.ids).toEqual(expected.ids);
  expect(actual.text).toEqual(expected.text);
  expect(actual.finished).toEqual(expected.finished);
  expect(actual.kept).toEqual(expected.kept);
  expectClose(actual.logprobs, expected.logprobs);
  expectClose(actual.behaviourLogprobs, expected.behaviourLogprobs);
}
