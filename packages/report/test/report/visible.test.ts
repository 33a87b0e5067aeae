import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { visible, visibleJson } from "../../src/report/index.js";

describe("hostile text on a terminal", () => {
  test.each([
    ["\u001B[2J\u001B]0;owned\u0007", "\\u{1b}[2J\\u{1b}]0;owned\\u{7}"],
    ["\u009B31m red", "\\u{9b}31m red"],
    ["one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"],
    ["safe \u202Etxt.exe", "safe \\u{202e}txt.exe"],
    ["a\u2028b\u2029c", "a\\u{2028}b\\u{2029}c"],
    ["back\\slash", "back\\\\slash"],
    ["\uD800 alone", "\\u{d800} alone"],
    ["日本語 🙂 👩\u200D👩\u200D👧 é ‌", "日本語 🙂 👩\u200D👩\u200D👧 é ‌"],
  ])("%j", (text, shown) => {
    expect(visible(text)).toBe(shown);
  });

  test("is truncated at characters, never within one", () => {
    expect(visible("🙂🙂🙂", 2)).toBe("🙂…");
    expect(visible("abc", 3)).toBe("abc");
  });

  const anything = fc.string({ unit: "binary", maxLength: 60 });

  test("contains no control characters, for any input", () => {
    fc.assert(
      fc.property(anything, (text) => {
        // oxlint-disable-next-line no-control-regex
        expect(visible(text)).not.toMatch(/[\u0000-\u001F\u007F-\u009F\u202A-\u202E\u2066-\u2069]/u);
      }),
      { seed: 3 },
    );
  });

  test("escaped JSON has the same value", () => {
    fc.assert(
      fc.property(fc.dictionary(anything, anything), (value) => {
        const json = visibleJson(JSON.stringify(value));
        expect(JSON.parse(json)).toEqual(JSON.parse(JSON.stringify(value)));
        // oxlint-disable-next-line no-control-regex
        expect(json).not.toMatch(/[\u0000-\u001F\u007F-\u009F\u202A-\u202E]/u);
      }),
      { seed: 4 },
    );
  });
});
