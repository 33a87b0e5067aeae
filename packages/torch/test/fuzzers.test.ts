import { describe, expect, it } from "vitest";

import { runFuzzer } from "../fuzz/harness.js";

// The fuzzers of docs/fuzzing.md for a few seconds each. FUZZ_SEED=n takes other cases.
const seed = Number(process.env["FUZZ_SEED"] ?? 7);

describe("fuzzers", () => {
  it.each([
    ["kernels", 1500],
    ["operators", 6000],
    ["allocations", 150],
    ["safetensors", 1500],
  ])(
    "%s: %i cases, none of which crashes, hangs or breaks a rule",
    async (name, cases) => {
      const { failures, refused, ...summary } = await runFuzzer({ name, cases, seed });
      expect(failures).toEqual([]);
      expect(summary.cases).toBe(cases);
      // Both sides of the rule were exercised, but where each case asks for its refusal.
      expect(refused).toBeGreaterThan(cases / 20);
      if (name !== "allocations") expect(refused).toBeLessThan(cases);
    },
    180_000,
  );

  it("report a case that ends its process by its number, and run the others", async () => {
    const reported: number[] = [];
    const summary = await runFuzzer({
      name: "itself",
      cases: 12,
      seed,
      secondsPerCase: 2,
      report: ({ index }) => reported.push(index),
    });
    expect(summary).toMatchObject({ cases: 12, refused: 3 });
    expect(reported).toEqual([2, 5, 9]);
    expect(summary.failures.map(({ what }) => what.split("\n")[0])).toEqual([
      expect.stringContaining("no end within 2 s"),
      "SIGSEGV",
      expect.stringContaining("Error: a rule is broken"),
    ]);
    expect(summary.failures[1]!.what).toContain("case 5 is about to happen");
  }, 60_000);
});
