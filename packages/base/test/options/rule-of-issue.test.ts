import { UsageError, parseOptions, requireList } from "@astra-rl/base";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { breaking } from "../support/breaking.js";

const schema = z.strictObject({
  count: z.int().min(1).optional(),
  share: z.union([z.literal("auto"), z.number().max(1)]).optional(),
  kind: z.enum(["adam", "sgd"]).optional(),
  names: z.array(z.string()).min(1).max(2).optional(),
  address: z.url().optional(),
  section: z.strictObject({ needed: z.boolean() }).optional(),
  weights: z.record(z.string().min(2), z.number()).optional(),
  form: z
    .discriminatedUnion("type", [z.object({ type: z.literal("a") }), z.object({ type: z.literal("b") })])
    .optional(),
  even: z
    .number()
    .refine((value) => value % 2 === 0, { error: "must be even", params: { rule: "odd" } })
    .optional(),
  other: z
    .number()
    .refine((value) => value !== 3, "must not be 3")
    .optional(),
});

describe("the rule of an error of parseOptions", () => {
  test.each<[rule: string, options: object]>([
    ["unknown-key", { counts: 1 }],
    ["invalid-type", { count: "1" }],
    ["out-of-range", { count: 0 }],
    ["out-of-range", { count: 0.5 }],
    ["out-of-range", { even: NaN }],
    ["out-of-range", { share: 2 }],
    ["unknown-choice", { share: "half" }],
    ["invalid-type", { names: 1 }],
    ["unknown-choice", { kind: "lion" }],
    ["empty", { names: [] }],
    ["too-long", { names: ["a", "b", "c"] }],
    ["invalid-format", { address: "nowhere" }],
    ["missing-key", { section: {} }],
    ["too-short", { weights: { a: 1 } }],
    ["unknown-choice", { form: { type: "c" } }],
    ["missing-key", { form: {} }],
    ["odd", { even: 1 }],
    ["invalid-value", { other: 3 }],
  ])("is %s for %o", (rule, options) => {
    expect(() => parseOptions("here", schema, options)).toThrow(breaking(rule, "here: "));
  });

  test("is that of the first of several mistakes", () => {
    expect(() => parseOptions("here", schema, { count: 0, kind: "lion" })).toThrow(
      breaking("out-of-range", "lion"),
    );
  });
});

test("an error keeps its rule, message and cause", () => {
  const cause = new Error("it");
  const error = new UsageError("lock-held", "run: is in use", { cause });
  expect([error.name, error.rule, error.message, error.cause]).toEqual([
    "UsageError",
    "lock-held",
    "run: is in use",
    cause,
  ]);
});

test("a single item is no list", () => {
  expect(() => requireList("Sampler", "prompts", "one")).toThrow(
    breaking("not-a-list", 'give one as ["one"]'),
  );
});
