import { expect, it } from "vitest";
import { promptLogprobs } from "../src/prompt-logprobs.js";

it("uses the tokens of the part only, without those before it or generated ones", () => {
  const scored = { tokens: ["The", " cat", " sat", " on", " it", "."], logprobs: [null, -1, -2, -3, -4, -5] };
  const prompt = "The cat sat on";
  expect(promptLogprobs("The cat sat on it.", scored, prompt, "The cat".length)).toEqual([-2, -3]);
  expect(promptLogprobs("The cat sat on it.", scored, prompt, prompt.length)).toEqual([]);
});

it("counts a token that begins before the part and ends in it", () => {
  const scored = { tokens: ["Hi", ".\n", "You"], logprobs: [null, -1, -2] };
  expect(promptLogprobs("Hi.\nYou", scored, "Hi.\nYou", 3)).toEqual([-1, -2]);
});

it("uses the server's offsets, in code points, if tokens are parts of characters", () => {
  // A face of two UTF-16 units before the part, and one of two tokens in it, the first of which has no text.
  const text = "😀 ab😀!";
  const tokens = ["😀", " ab", "", "\ufffd", "!"];
  const scored = { tokens, logprobs: [null, -1, -2, -3, -4], offsets: [0, 1, 4, 4, 5] };
  expect(promptLogprobs(text, scored, text, "😀 ab".length)).toEqual([-2, -3, -4]);
  expect(promptLogprobs(text, scored, "😀 ab", "😀".length)).toEqual([-1]);
});

it("refuses tokens that do not cover the prompt", () => {
  const scored = { tokens: ["Hi", " you"], logprobs: [null, -1] };
  // The server did not echo.
  expect(promptLogprobs(" you", { tokens: [" you"], logprobs: [-1] }, "Hi", 0)).toBeNull();
  // The part's own first token has none.
  expect(promptLogprobs("Hi you", scored, "Hi you", 0)).toBeNull();
  const parts = { tokens: ["Hi", "\ufffd"], logprobs: [null, -1] };
  expect(promptLogprobs("Hi é", parts, "Hi é", 2)).toBeNull();
  for (const offsets of [[-1, -1], [0], [1, 2], [0, -1]]) {
    expect(promptLogprobs("Hi é", { ...parts, offsets }, "Hi é", 2)).toBeNull();
  }
});

it("refuses offsets that count each part of a character as one", () => {
  // Two syllables of three tokens each, then words: 4 tokens are of the probe " ok", 2 of what is before it.
  const text = "\uc548\ub155 all ok!";
  const part = "\ufffd";
  const tokens = [part, part, part, part, part, part, " all", " ok", "!"];
  const logprobs = [null, -1, -1, -1, -1, -1, -2, -3, -9];
  const right = [0, 0, 0, 1, 1, 1, 2, 6, 9];
  const wrong = [0, 1, 2, 3, 4, 5, 6, 10, 13];
  const told = (offsets: number[], start: number, prompt = "\uc548\ub155 all ok") =>
    promptLogprobs(text, { tokens, logprobs, offsets }, prompt, start);
  expect(told(right, 6)).toEqual([-3]);
  expect(told(right, 2)).toEqual([-2, -3]);
  expect(told(right, 1)).toEqual([-1, -1, -1, -2, -3]);
  for (const start of [1, 2, 6]) expect(told(wrong, start)).toBeNull();
  // Offsets of bytes, and of UTF-16 units beyond the basic plane.
  expect(told([0, 1, 2, 3, 4, 5, 6, 10, 13], 6)).toBeNull();
  const face = { tokens: ["\u{1f600}", part, part, "!"], logprobs: [null, -1, -2, -3] };
  expect(
    promptLogprobs("\u{1f600}\u00e9!", { ...face, offsets: [0, 1, 1, 2] }, "\u{1f600}\u00e9", 2),
  ).toEqual([-1, -2]);
  expect(
    promptLogprobs("\u{1f600}\u00e9!", { ...face, offsets: [0, 2, 2, 3] }, "\u{1f600}\u00e9", 2),
  ).toBeNull();
  // They do not end where the text does.
  expect(told([0, 0, 0, 1, 1, 1, 2, 6, 10], 6)).toBeNull();
  expect(told([0, 0, 0, 1, 1, 1, 2, 8, 9], 6)).toBeNull();
});

it("accepts tokens that were decoded without their space, at their offsets", () => {
  const scored = { tokens: ["The", "cat", "\ufffd", "\ufffd"], logprobs: [null, -1, -2, -3] };
  const prompt = "The cat\u00e9";
  expect(promptLogprobs(prompt, { ...scored, offsets: [0, 3, 7, 7] }, prompt, 3)).toEqual([-1, -2, -3]);
});

it("accepts an end token after the text, and no other token there", () => {
  const scored = { tokens: ["caf", "\ufffd", "\ufffd", "</s>"], logprobs: [null, -1, -2, -9] };
  const text = "caf\u00e9";
  expect(promptLogprobs(text, { ...scored, offsets: [0, 3, 3, 4] }, text, 3)).toEqual([-1, -2]);
  expect(promptLogprobs(text, { ...scored, offsets: [0, 3, 4, 5] }, text, 3)).toBeNull();
  // As if the first part of a character were a whole one.
  const counted = { ...scored, tokens: ["caf", "\ufffd", "\ufffd", "!"], offsets: [0, 3, 4, 5] };
  expect(promptLogprobs(`${text}!`, counted, text, 3)).toBeNull();
});

it("skips a token that the server's tokenizer puts before the prompt", () => {
  const scored = {
    tokens: ["<s>", "The", " cat", "!"],
    logprobs: [null, -1, -2, -3],
    offsets: [0, 3, 6, 10],
  };
  expect(promptLogprobs("The cat!", scored, "The cat", 0)).toEqual([-1, -2]);
  expect(promptLogprobs("The cat!", scored, "The cat", 3)).toEqual([-2]);
  const ended = { ...scored, tokens: ["<s>", "The", " cat", "</s>"] };
  expect(promptLogprobs("The cat", ended, "The cat", 3)).toEqual([-2]);
});

it("reads parts of characters that are spelled as bytes, with offsets of its own", () => {
  const text = "\uc548\ub155 \u{1f600} ok";
  const tokens = [
    ..."\uc548\ub155".split("").flatMap((each) => [...Buffer.from(each)].map((byte) => [byte])),
    [0x20, 0xf0, 0x9f],
    [0x98, 0x80],
  ].map((bytes) => `bytes:${bytes.map((byte) => `\\x${byte.toString(16)}`).join("")}`);
  const scored = {
    tokens: [...tokens, " ok", "bytes:\\xec"],
    logprobs: [null, -1, -2, -3, -4, -5, -6, -7, -8, -9],
  };
  const told = (start: number, more: object = {}) =>
    promptLogprobs(`${text}\ufffd`, { ...scored, ...more }, text, start);
  // The server's own offsets may be wrong, such as those of bytes.
  for (const more of [{}, { offsets: [0, 1, 2, 3, 4, 5, 6, 9, 11, 14] }]) {
    expect(told("\uc548".length, more)).toEqual([-3, -4, -5, -6, -7, -8]);
    expect(told("\uc548\ub155".length, more)).toEqual([-6, -7, -8]);
    expect(told("\uc548\ub155 \u{1f600}".length, more)).toEqual([-8]);
  }
  expect(promptLogprobs(`${text}!`, { ...scored, tokens: [...tokens, " no", "!"] }, text, 1)).toBeNull();
});
