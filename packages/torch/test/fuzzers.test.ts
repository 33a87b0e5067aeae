import { describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { runFuzzer } from "../fuzz/harness.js";
import { fuzzFindings, fuzzSeed, nothing } from "./fuzz-findings.js";

describe("fuzzers", () => {
  it.each([
    ["operators", rounds(1000, 6000)],
    ["safetensors", rounds(200, 1500)],
  ])(
    "%s: %i cases, none of which crashes, hangs or breaks a rule",
    async (name, cases) => {
      expect(await fuzzFindings(name, cases)).toEqual(nothing(cases));
    },
    180_000,
  );

  it("report a case that ends its process by its number, and run the others", async () => {
    const reported: number[] = [];
    const summary = await runFuzzer({
      name: "itself",
      cases: 12,
      seed: fuzzSeed,
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
