import { argumentsSchema, issueLine, worded } from "@astra-rl/base";
import { expect, test } from "vitest";

const schema = argumentsSchema(
  {
    properties: {
      name: { type: "string", minLength: 2, maxLength: 4 },
      code: { type: "string", pattern: "^[A-Z]+$" },
      long: { type: "string", minLength: 3 },
      tags: { type: "array", items: { type: "string" }, maxItems: 1 },
      dozens: { type: "number", multipleOf: 12 },
      kind: { enum: ["a", "b"] },
      amount: { type: "integer", minimum: 1 },
      either: { anyOf: [{ type: "string" }, { type: "number" }] },
    },
    required: ["name"],
    additionalProperties: false,
  },
  "tool",
);

test.each<[object | string, string]>([
  ["text", 'the arguments: must be an object, got "text"'],
  [{}, "name: is missing, must be a string of 2 to 4 characters"],
  [{ name: 7 }, "name: must be a string of 2 to 4 characters, got 7"],
  [{ name: "longer" }, 'name: must be a string of 2 to 4 characters, got "longer"'],
  [{ name: "ab", long: "a" }, 'long: must be a string of at least 3 characters, got "a"'],
  [{ name: "ab", code: "x" }, 'code: must match /^[A-Z]+$/, got "x"'],
  [{ name: "ab", tags: ["a", "b"] }, 'tags: must be an array of at most 1 items, got ["a", "b"]'],
  [{ name: "ab", tags: [1] }, "tags[0]: must be a string, got 1"],
  [{ name: "ab", dozens: 13 }, "dozens: must be a multiple of 12, got 13"],
  [{ name: "ab", kind: "c" }, 'kind: must be "a" or "b", got "c"'],
  [{ name: "ab", amount: 0 }, "amount: must be a whole number of at least 1, got 0"],
  [{ name: "ab", either: true }, "either: must be a string or a finite number, got true"],
  [{ name: "ab", other: 1 }, "the arguments: has the unknown key other"],
])("the first rule that %j breaks is told in our own words", (given, line) => {
  const issue = schema.safeParse(given, { error: worded }).error!.issues[0]!;
  expect(issueLine(issue, given, "the arguments")).toBe(line);
});
