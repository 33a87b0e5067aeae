// What fuzzers and killed runs find in a night: generated configurations, run folders, scorers and locks, command lines, runs that
// are killed, renamed folders, fights for a lock.
//
//   npm run nightly [-- COUNT [SEED]]     COUNT: generated cases in all, 10,000 unless told otherwise
//
// Ends with 1 where anything failed; each failure is told of with the seed that repeats it. See docs/fuzzing.md.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const [count = "10000", seed = String(Math.floor(Date.now() / 86_400_000))] = process.argv.slice(2);
if (!/^[1-9]\d*$/u.test(count) || !/^\d+$/u.test(seed)) {
  process.stderr.write(
    "nightly: COUNT and SEED must be whole numbers, for example: npm run nightly -- 10000 1\n",
  );
  process.exit(2);
}
const each = String(Math.ceil(Number(count) / 4));
const times = String(Math.max(3, Math.min(100, Math.ceil(Number(count) / 100))));

const RUNS = [
  ["hostile-input", "--cases", each],
  ["command-line", "--cases", String(Math.ceil(Number(count) / 500))],
  ["run-folders", "--renames", times, "--races", times],
  ["interruptions", "--signal", "SIGKILL", "--times", times, "--steps", "30"],
];

let failed = 0;
for (const [name, ...args] of RUNS) {
  const script = fileURLToPath(new URL(`../packages/astra-rl/fuzz/${name}.ts`, import.meta.url));
  const { status } = spawnSync(process.execPath, ["--import", "tsx", script, ...args, "--seed", seed], {
    stdio: "inherit",
  });
  if (status !== 0) failed += 1;
}
process.stdout.write(`nightly: seed ${seed}, ${RUNS.length} programs, ${failed} with failures\n`);
process.exitCode = failed === 0 ? 0 : 1;
