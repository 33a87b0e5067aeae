import { runFuzzer } from "../fuzz/harness.js";

/** FUZZ_SEED=n takes other cases. */
export const fuzzSeed = Number(process.env["FUZZ_SEED"] ?? 7);

/** What one of the fuzzers of docs/fuzzing.md finds in a few seconds. */
export async function fuzzFindings(name: string, cases: number) {
  const { failures, refused, ...summary } = await runFuzzer({ name, cases, seed: fuzzSeed });
  // Where each case asks for its refusal, there is no other side.
  const someAreRefused = refused > cases / 20 && (name === "allocations" || refused < cases);
  return { failures, cases: summary.cases, bothSidesOfTheRule: someAreRefused };
}

export const nothing = (cases: number) => ({ failures: [], cases, bothSidesOfTheRule: true });
