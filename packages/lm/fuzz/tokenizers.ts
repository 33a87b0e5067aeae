// Mutated tokenizers: npx tsx packages/lm/fuzz/tokenizers.ts [--cases 100000] [--seed 1] [--limit 2000]
// Prints the outcomes; exits with code 1 if one failed without a clear error, or took longer than the limit
// (milliseconds of processor time). See docs/fuzzing.md.
import { parseArgs } from "node:util";
import { mutateAndUse } from "./mutated-tokenizers.js";

const { values } = parseArgs({
  options: {
    cases: { type: "string", default: "10000" },
    seed: { type: "string", default: "1" },
    limit: { type: "string", default: "2000" },
  },
});
const [cases, seed, limit] = [Number(values.cases), Number(values.seed), Number(values.limit)];
const counts = { loaded: 0, refused: 0, wrong: 0, slow: 0 };
let slowest = 0;
for (let index = 0; index < cases; index++) {
  const outcome = mutateAndUse(seed + index);
  counts[outcome.kind]++;
  slowest = Math.max(slowest, outcome.milliseconds);
  if (outcome.milliseconds > limit) counts.slow++;
  if (outcome.kind === "wrong" || outcome.milliseconds > limit) {
    console.error(
      `seed ${seed + index}: ${outcome.problem ?? "slow"} (${Math.round(outcome.milliseconds)} ms)`,
    );
  }
}
console.log(JSON.stringify({ cases, seed, ...counts, slowestMilliseconds: Math.round(slowest) }));
process.exitCode = counts.wrong + counts.slow > 0 ? 1 : 0;
