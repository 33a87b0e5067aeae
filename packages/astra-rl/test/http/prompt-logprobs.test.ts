import { expect, it } from "vitest";
import { promptLogprobs } from "../../src/http/prompt-logprobs.js";

it("takes the tokens of the part, and neither those before it nor what was generated", () => {
  const scored = { tokens: ["The", " cat", " sat", " on", " it", "."], logprobs: [null, -1, -2, -3, -4, -5] };
  const prompt = "The cat sat on";
  expect(promptLogprobs("The cat sat on it.", scored, prompt, "The cat".length)).toEqual([-2, -3]);
  expect(promptLogprobs("The cat sat on it.", scored, prompt, prompt.length)).toEqual([]);
});

it("counts a token that begins before the part and ends in it", () => {
  const scored = { tokens: ["Hi", ".\n", "You"], logprobs: [null, -1, -2] };
  expect(promptLogprobs("Hi.\nYou", scored, "Hi.\nYou", 3)).toEqual([-1, -2]);
});

it("takes the server's offsets, in code points, where tokens are parts of characters", () => {
  // A face of two UTF-16 units before the part, and one of two tokens in it, the first of which has no text.
  const text = "😀 ab😀!";
  const tokens = ["😀", " ab", "", "\ufffd", "!"];
  const scored = { tokens, logprobs: [null, -1, -2, -3, -4], offsets: [0, 1, 4, 4, 5] };
  expect(promptLogprobs(text, scored, text, "😀 ab".length)).toEqual([-2, -3, -4]);
  expect(promptLogprobs(text, scored, "😀 ab", "😀".length)).toEqual([-1]);
});

it("refuses what does not cover the prompt", () => {
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
