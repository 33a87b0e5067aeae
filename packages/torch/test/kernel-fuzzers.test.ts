import { describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { fuzzFindings, nothing } from "./fuzz-findings.js";

// Fuzzers of the package's own loops, which differ between instruction sets.
describe("fuzzers", () => {
  it.each([
    ["kernels", rounds(200, 1500)],
    ["allocations", rounds(30, 150)],
  ])(
    "%s: %i cases, none of which crashes, hangs or breaks a rule",
    async (name, cases) => {
      expect(await fuzzFindings(name, cases)).toEqual(nothing(cases));
    },
    180_000,
  );
});
