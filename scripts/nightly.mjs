// What fuzzers and killed runs find in a night: generated configurations, run folders, scorers and locks, command lines, runs that
// are killed, renamed folders, fights for a lock; and the tests against `transformers serve`, in a virtual environment that it makes
// in the folder for temporary files, or in the one whose executable ASTRA_TRANSFORMERS names.
//
//   npm run nightly [-- COUNT [SEED]]     COUNT: generated cases in all, 10,000 unless told otherwise
//
// Ends with 1 where anything failed; each failure is told of with the seed that repeats it. See docs/fuzzing.md.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
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
const SERVER_TESTS = "packages/astra-rl/test/cli/transformers-serve.test.ts";
const server = process.env["ASTRA_TRANSFORMERS"] ?? transformersOf(join(tmpdir(), "astra-rl-transformers"));
if (server === null) {
  process.stderr.write(
    `nightly: no virtual environment with transformers, so that ${SERVER_TESTS} was not run\n`,
  );
  failed += 1;
} else {
  const vitest = ["vitest", "run", SERVER_TESTS];
  const env = { ...process.env, ASTRA_TRANSFORMERS: server };
  if (spawnSync("npx", vitest, { stdio: "inherit", env }).status !== 0) failed += 1;
}

/** Makes a virtual environment unless it is there. @returns the path of `transformers` in it; null where that fails */
function transformersOf(folder) {
  const executable = join(folder, "bin", "transformers");
  const run = (program, ...args) => spawnSync(program, args, { stdio: "inherit" }).status === 0;
  const packages = ["torch", "accelerate", "transformers[serving]"];
  const isThere =
    existsSync(executable) ||
    (run("python3", "-m", "venv", folder) && run(join(folder, "bin", "pip"), "install", "-q", ...packages));
  return isThere ? executable : null;
}

process.stdout.write(`nightly: seed ${seed}, ${RUNS.length + 1} programs, ${failed} with failures\n`);
process.exitCode = failed === 0 ? 0 : 1;
