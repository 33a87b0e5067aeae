// What fuzzers and killed runs find in a night: generated configurations, run folders, scorers and locks, command lines, runs that
// are killed, also of several processes, renamed folders, fights for a lock; all tests with more rounds and every variant
// (scripts/rounds.ts); programs of documents that take minutes; and tests with programs of others, which it installs:
// `transformers serve` as a server, and promptfoo, lm-eval and Python's openai as clients. And what continuous integration leaves
// out while the kernels stay as they are: the numerical tests within other instruction sets than this machine's, and other machines.
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
  ...["SIGKILL", "SIGINT", "SIGTERM"].map((signal) => [
    "interruptions",
    "--signal",
    signal,
    "--times",
    times,
    "--steps",
    "30",
  ]),
];

let failed = 0;
for (const [name, ...args] of RUNS) {
  const script = fileURLToPath(new URL(`../packages/astra-rl/fuzz/${name}.ts`, import.meta.url));
  const { status } = spawnSync(process.execPath, ["--import", "tsx", script, ...args, "--seed", seed], {
    stdio: "inherit",
  });
  if (status !== 0) failed += 1;
}
// Ranks of a run of several processes, killed and stopped.
const killed = fileURLToPath(new URL("kill-ranks.mjs", import.meta.url));
const moments = ["--moments", String(Math.ceil(Number(times) / 2)), "--seed", seed];
if (spawnSync(process.execPath, [killed, ...moments], { stdio: "inherit" }).status !== 0) failed += 1;
const run = (program, ...args) => spawnSync(program, args, { stdio: "inherit" }).status === 0;
if (!run("npm", "run", "test:isas")) failed += 1;
// The check of a GPU, with the CPU in its place.
if (!run("npm", "run", "check:cuda", "--", "--device", "cpu", "--only", "runs,commands")) failed += 1;
// Programs of others, on both sides of the API. Each is installed into the folder for temporary files, unless its variable names one.
const folder = join(tmpdir(), "astra-rl-tools");
const pip = (environment, ...args) =>
  (existsSync(environment) || run("python3", "-m", "venv", environment)) &&
  run(join(environment, "bin", "pip"), "install", "-q", ...args);
const TOOLS = [
  {
    variable: "ASTRA_TRANSFORMERS",
    test: "packages/astra-rl/test/commands/transformers-serve.test.ts",
    executable: join(folder, "transformers", "bin", "transformers"),
    install: () => pip(join(folder, "transformers"), "torch", "accelerate", "transformers[serving]"),
  },
  ...["serve/test/tools", "serve/test/trl", "astra-rl/test/distributed/launchers"].map((name) => ({
    variable: "ASTRA_PYTHON",
    test: `packages/${name}.test.ts`,
    executable: join(folder, "python", "bin", "python"),
    install: () =>
      pip(join(folder, "python"), "torch", "transformers", "openai", "lm-eval[api]", "trl", "datasets"),
  })),
  {
    variable: "ASTRA_PROMPTFOO",
    test: "packages/serve/test/tools.test.ts",
    executable: join(folder, "node_modules", ".bin", "promptfoo"),
    // Its scripts fetch browsers; its database needs a binary of its own, which --omit=optional leaves out.
    install: () =>
      run(
        "npm",
        "install",
        "--prefix",
        folder,
        "--ignore-scripts",
        "--omit=optional",
        "promptfoo@0.121.20",
        "@libsql/linux-x64-gnu",
      ),
  },
];
const env = { ...process.env, ASTRA_NIGHT: "1" };
for (const { variable, test, executable, install } of TOOLS) {
  if (env[variable] === undefined && (existsSync(executable) || install())) env[variable] = executable;
  if (env[variable] === undefined) {
    process.stderr.write(
      `nightly: ${executable} could not be installed, so that not all of ${test} is run\n`,
    );
    failed += 1;
  }
}
for (const program of [["node_modules/vitest/vitest.mjs", "run"], ["scripts/run-snippets.mjs"]]) {
  if (spawnSync(process.execPath, program, { stdio: "inherit", env }).status !== 0) failed += 1;
}

process.stdout.write(`nightly: seed ${seed}, ${RUNS.length + 5} programs, ${failed} with failures\n`);
process.exitCode = failed === 0 ? 0 : 1;
