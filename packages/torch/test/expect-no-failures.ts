import { expect } from "vitest";
import { runFuzzer } from "../fuzz/harness.js";

/** FUZZ_SEED=n takes other cases. */
export const fuzzSeed = Number(process.env["FUZZ_SEED"] ?? 7);

/** Runs one of the fuzzers of docs/fuzzing.md for a few seconds. */
export async function expectNoFailures(name: string, cases: number): Promise<void> {
  const { failures, refused, ...summary } = await runFuzzer({ name, cases, seed: fuzzSeed });
  expect(failures).toEqual([]);
  expect(summary.cases).toBe(cases);
  // Both sides of the rule were exercised, but where each case asks for its refusal.
  expect(refused).toBeGreaterThan(cases / 20);
  if (name !== "allocations") expect(refused).toBeLessThan(cases);
}
