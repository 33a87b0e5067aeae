/**
 * Fuzzers of the engine: docs/fuzzing.md.
 *
 *   npx tsx packages/torch/fuzz/run.ts NAME [--cases N] [--seed S] [--from I]
 *   npx tsx packages/torch/fuzz/run.ts NAME --seed S --case I
 *
 * NAME is kernels, operators, allocations or safetensors. The exit code is 1 if any case failed.
 */
import { parseArgs } from "node:util";

import { allocations } from "./allocations.js";
import { runCases, runFuzzer, runOneCase, type Fuzzer } from "./harness.js";
import { itself } from "./itself.js";
import { kernels } from "./kernels.js";
import { operators } from "./operators.js";
import { safetensors } from "./safetensors.js";

const fuzzers: Record<string, Fuzzer> = { kernels, operators, allocations, safetensors, itself };

function fuzzerOf(name: string | undefined): Fuzzer {
  const found = name === undefined ? undefined : fuzzers[name];
  if (found !== undefined) return found;
  throw new Error(`NAME must be one of ${Object.keys(fuzzers).join(", ")}, got ${name ?? "nothing"}`);
}

if (process.argv[2] === "--child") {
  const [name, seed, from, count, folder] = process.argv.slice(3);
  runCases(fuzzerOf(name), Number(seed), Number(from), Number(count), folder!);
} else {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      cases: { type: "string", default: "10000" },
      seed: { type: "string", default: "1" },
      from: { type: "string", default: "0" },
      case: { type: "string" },
    },
  });
  const [name] = positionals;
  const fuzzer = fuzzerOf(name);
  const seed = Number(values.seed);
  if (values.case !== undefined) runOneCase(fuzzer, seed, Number(values.case));
  else {
    const cases = Number(values.cases);
    process.stdout.write(`${name}, ${cases} cases from ${values.from} on, seed ${seed}: ${fuzzer.about}\n`);
    const summary = await runFuzzer({
      name: name!,
      cases,
      seed,
      from: Number(values.from),
      report: ({ index, what }) => process.stdout.write(`case ${index} (--seed ${seed}): ${what}\n`),
    });
    process.stdout.write(
      `${name}: ${summary.cases} cases, seed ${seed}: ${summary.refused} refused, ` +
        `${summary.failures.length} failed, ${summary.seconds.toFixed(0)} s\n`,
    );
    process.exitCode = summary.failures.length === 0 ? 0 : 1;
  }
}
