import { runFuzzer } from "../fuzz/harness.js";

/** FUZZ_SEED=n selects other cases. */
export const fuzzSeed = Number(process.env["FUZZ_SEED"] ?? 7);

/** Findings of one of the fuzzers of docs/fuzzing.md in a few seconds. */
export async function fuzzFindings(name: string, cases: number) {
  const { failures, refused, ...summary } = await runFuzzer({ name, cases, seed: fuzzSeed });
  // If every case is expected to be refused, none succeeds.
  const someAreRefused = refused > cases / 20 && (name === "allocations" || refused < cases);
  return { failures, cases: summary.cases, bothSidesOfTheRule: someAreRefused };
}

export const nothing = (cases: number) => ({ failures: [], cases, bothSidesOfTheRule: true });
