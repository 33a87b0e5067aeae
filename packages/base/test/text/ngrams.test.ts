import { describe, expect, it } from "vitest";
import { distinctNgrams, words } from "../../src/text/index.js";

describe("words", () => {
  it("folds case and splits at white space and punctuation, keeping inner apostrophes", () => {
    expect(words("Don’t  STOP, ok?\n")).toEqual(["don't", "stop", ",", "ok", "?"]);
    expect(words(" \n")).toEqual([]);
  });
});

describe("distinctNgrams", () => {
  it("divides different n-grams by all of them, over all texts together", () => {
    // a b a / a b: 1-grams a b a a b: 2 of 5; 2-grams "a b", "b a", "a b": 2 of 3; one 3-gram.
    const texts = [
      ["a", "b", "a"],
      ["a", "b"],
    ];
    expect([1, 2, 3].map((n) => distinctNgrams(texts, n))).toEqual([2 / 5, 2 / 3, 1]);
    expect(distinctNgrams(texts, 4)).toBeNull();
    expect(distinctNgrams([], 1)).toBeNull();
  });
});
