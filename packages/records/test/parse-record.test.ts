import { describe, expect, it } from "vitest";
import { z } from "zod";
import { breaking } from "../../base/test/support/breaking.js";
import { parserOf } from "../src/index.js";

const parse = parserOf(
  z.object({
    name: z.string(),
    count: z.int().positive(),
    verdict: z.enum(["passed", "failed"]),
    turns: z.array(z.strictObject({ text: z.string() })),
  }),
  "look",
);

const RECORD = { name: "a", count: 1, verdict: "passed", turns: [{ text: "b" }] };

describe("a record that breaks a rule", () => {
  const remedy = "; it was edited or is damaged: restore it, or make it again with the command that wrote it";

  it.each<[string, string, unknown, string]>([
    ["another type", "invalid-type", { ...RECORD, name: 3 }, "name: must be a string, got 3"],
    ["a missing key", "missing-key", { ...RECORD, name: undefined }, "name: is missing, must be a string"],
    ["a number out of range", "out-of-range", { ...RECORD, count: 0 }, "got 0"],
    [
      "an unknown choice",
      "unknown-choice",
      { ...RECORD, verdict: "perhaps" },
      'verdict: must be "passed" or "failed", got a text of 7 characters',
    ],
    [
      "an entry of an array",
      "invalid-type",
      { ...RECORD, turns: [{ text: ["secret"] }] },
      "turns.0.text: must be a string, got an array of 1",
    ],
    [
      "an unknown key",
      "unknown-key",
      { ...RECORD, turns: [{ text: "b", secret: 1 }] },
      "turns.0: has a key that this release does not know",
    ],
    ["no object", "invalid-type", "[]", "the look: must be an object, got an array of 0"],
  ])("is refused with the rule, what was given and what to do: %s", (_, rule, given, message) => {
    expect(() => parse(given, "looks.jsonl, line 2")).toThrow(breaking(rule, `looks.jsonl, line 2: `));
    expect(() => parse(given)).toThrow(breaking(rule, message));
    expect(() => parse(given)).toThrow(breaking(rule, remedy));
    // Texts of a file are quoted nowhere.
    expect(() => parse(given)).not.toThrow(/secret|perhaps/u);
  });
});
