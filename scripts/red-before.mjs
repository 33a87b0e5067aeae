#!/usr/bin/env node
/**
 * Shows that tests guard what they are said to guard: for each line of `red-before/*.mjs`, undoes the fix by a small change of
 * the source and requires its test to fail, and to pass without the change.
 *
 *   node scripts/red-before.mjs [TEXT]
 *
 *   TEXT   only the lines whose number or words hold it
 *
 * Works on a copy of the last commit in a temporary folder, never in place; gives the rows of a table (docs/regressions.md).
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createVitest } from "vitest/node";
import { COMMAND_LINE } from "./red-before/command-line.mjs";
import { ENGINE } from "./red-before/engine.mjs";
import { MODELS } from "./red-before/models.mjs";

/**
 * @typedef {object} Regression
 * @property {string} line what was wrong, as its list names it, with its number
 * @property {string} file of the test
 * @property {string} test a part of its full name
 * @property {string} source the file that is changed
 * @property {string} from what stands there exactly once
 * @property {string} to what undoes the fix
 * @property {"dist" | "native"} [build] what has to be built for the test to see the change
 * @property {"crash" | "hang"} [ends] how the test's process may end instead of failing
 * @property {string} [isa] the instruction set within which the test runs. Default: all that the machine has
 */

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Seconds of a processor that no test takes. */
const LIMIT = 120;

const wanted = process.argv[2] ?? "";
const chosen = /** @type {Regression[]} */ ([...ENGINE, ...MODELS, ...COMMAND_LINE]).filter(({ line }) =>
  line.includes(wanted),
);
const escaped = (text) => text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);

function run(folder, program, args, options = {}) {
  return spawnSync(program, args, {
    cwd: folder,
    encoding: "utf8",
    maxBuffer: 64 << 20,
    env: { ...process.env, OMP_NUM_THREADS: "1" },
    ...options,
  });
}

function mustRun(folder, program, ...args) {
  const { status, stdout, stderr } = run(folder, program, args);
  if (status !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${status}\n${stdout}${stderr}`);
  return stdout;
}

/** The last commit, with what is installed and built here. */
function makeCopy() {
  const copy = join(mkdtempSync(join(tmpdir(), "astra-rl-regressions-")), "copy");
  mustRun(root, "git", "worktree", "add", "--detach", copy, "HEAD");
  mustRun(root, "cp", "-al", join(root, "node_modules"), join(copy, "node_modules"));
  const ignored = mustRun(root, "git", "ls-files", "-oi", "--exclude-standard", "--directory", "packages");
  for (const folder of ignored.split("\n").filter((path) => /(?:build|dist)\/$/.test(path))) {
    mkdirSync(join(copy, folder), { recursive: true });
    cpSync(join(root, folder), join(copy, folder), { recursive: true, preserveTimestamps: true });
  }
  return copy;
}

/** One for each instruction set: it keeps what it has compiled. */
const runners = new Map();

/**
 * Runs a file's tests of these names, in a process of their own.
 *
 * @param changed a file whose content is another than at the run before
 */
async function runTests(copy, file, names, isa, changed) {
  if (!runners.has(isa)) {
    const env = { OMP_NUM_THREADS: "1", ...(isa === undefined ? {} : { ASTRA_ISA: isa }) };
    runners.set(isa, await createVitest("test", { root: copy, watch: false, reporters: [{}], env }));
  }
  const runner = runners.get(isa);
  if (changed !== undefined) for (const each of runners.values()) each.invalidateFile(join(copy, changed));
  runner.setGlobalTestNamePattern(new RegExp(names.map(escaped).join("|"), "u"));
  const specifications = await runner.globTestSpecifications([file]);
  const own = specifications.filter(({ moduleId }) => moduleId === join(copy, file));
  const watch = setInterval(endLoops, 5000);
  const { testModules } = await runner.runTestSpecifications(own);
  clearInterval(watch);
  return testModules.flatMap((module) =>
    [...module.children.allTests()].map((test) => ({
      fullName: test.fullName.replaceAll(" > ", " "),
      state: test.result().state,
      errors: (test.result().errors ?? []).map(({ message }) => message),
    })),
  );
}

/** Ends tests, and what they have started, that took a processor for longer than any does: nothing else ends a loop without end. */
function endLoops() {
  const { stdout } = run(root, "ps", ["-eo", "pid=,ppid=,cputimes="]);
  const processes = stdout
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/u).map(Number));
  const ours = new Set([process.pid]);
  for (let before = 0; before < ours.size;) {
    before = ours.size;
    for (const [pid, parent] of processes) if (ours.has(parent)) ours.add(pid);
  }
  ours.delete(process.pid);
  for (const [pid, , seconds] of processes) {
    if (ours.has(pid) && seconds > LIMIT) run(root, "kill", ["-KILL", String(pid)]);
  }
}

/** "green", "red", or what else came of a test. */
function stateOf({ test, ends }, tests) {
  const states = tests
    .filter(({ fullName, state }) => fullName.includes(test) && state !== "skipped" && state !== "pending")
    .map(({ state }) => state);
  if (states.includes("failed")) return "red";
  // A process that ended takes the states of its tests with it.
  if (states.length === 0) return ends === undefined ? "not run" : "red";
  return "green";
}

function build(copy, what) {
  if (what === "dist") {
    mustRun(
      copy,
      process.execPath,
      "node_modules/typescript/bin/tsc",
      "-b",
      "packages/torch",
      "packages/lm",
      "packages/astra-rl",
    );
  } else if (what === "native") {
    mustRun(copy, process.execPath, "scripts/setup.mjs", "--quiet");
  }
}

/** What came of the test with the fix undone. */
async function withoutFix(copy, regression) {
  const { file, test, source, from, to, build: what, isa } = regression;
  const path = join(copy, source);
  const text = readFileSync(path, "utf8");
  if (text.split(from).length !== 2) return `${source} holds "${from}" ${text.split(from).length - 1} times`;
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
  try {
    build(copy, what);
    return stateOf(regression, await runTests(copy, file, [test], isa, source));
  } finally {
    writeFileSync(path, text);
    build(copy, what);
  }
}

const copy = makeCopy();
// What tests start looks for packages where it is started.
process.chdir(copy);
let wrong = 0;
/** What came of the tests of a file as they are, by file and instruction set. */
const before = new Map();
try {
  // The quickest first; what is compiled comes last.
  const builds = [undefined, "dist", "native"];
  chosen.sort((a, b) => builds.indexOf(a.build) - builds.indexOf(b.build));
  let isSetUp = false;
  /** Restored since the last run. */
  let lastChanged;
  for (const regression of chosen) {
    const { line, file, test, isa, build: what } = regression;
    if (what !== undefined && !isSetUp) build(copy, "native");
    isSetUp ||= what !== undefined;
    const key = `${file} ${isa ?? ""}`;
    if (!before.has(key)) {
      const names = chosen.filter((each) => each.file === file && each.isa === isa).map((each) => each.test);
      before.set(key, await runTests(copy, file, [...new Set(names)], isa, lastChanged));
    }
    const green = stateOf({ ...regression, ends: undefined }, before.get(key));
    const red = await withoutFix(copy, regression);
    lastChanged = regression.source;
    if (green !== "green" || red !== "red") wrong += 1;
    if (green === "red") {
      for (const { fullName, errors } of before.get(key)) {
        if (fullName.includes(test)) process.stderr.write(`${fullName}: ${errors.join("\n")}\n`);
      }
    }
    const name = `${file.replace("packages/", "")}: ${test.replaceAll("|", String.raw`\|`)}`;
    process.stdout.write(`| ${line} | ${name} | ${red} | ${green} |\n`);
  }
  process.stdout.write(
    `${chosen.length} lines, ${chosen.length - wrong} red without the fix and green with it, ${wrong} not\n`,
  );
} finally {
  for (const runner of runners.values()) await runner.close();
  process.chdir(root);
  run(root, "git", ["worktree", "remove", "--force", copy]);
  rmSync(dirname(copy), { recursive: true, force: true });
}
process.exitCode = wrong === 0 ? 0 : 1;
