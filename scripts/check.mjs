#!/usr/bin/env node
/**
 * Everything that must hold before a change is merged; `npm run check` and continuous integration run precisely this.
 *
 *   node scripts/check.mjs [--without-tests]
 */
import { spawnSync } from "node:child_process";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { executeBeside } from "../packages/torch/scripts/setup/command.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const bin = (path) => join(root, "node_modules", path);

/** @typedef {[name: string, args: string[]]} Check run by this Node */
/** @type {Check} */
const setUp = ["set-up", [join(root, "scripts/setup.mjs"), "--quiet"]];
/** @type {Check[]} the longest first */
const checks = [
  ["examples", [join(root, "scripts/run-snippets.mjs")]],
  ["types", [bin("typescript-7/bin/tsc"), "-p", join(root, "tsconfig.check.json")]],
  ["types of the page", [bin("typescript-7/bin/tsc"), "-p", join(root, "packages/viewer/tsconfig.json")]],
  ["lint", [bin("oxlint/bin/oxlint"), "--type-aware", "--deny-warnings"]],
  ["format", [bin("prettier/bin/prettier.cjs"), "--check", "--log-level=warn", "."]],
  ["reference", [bin("typedoc/bin/typedoc")]],
];
const failed = [];

/** Runs one check and shows what it said when it has ended, so that those that run side by side are not mixed. */
async function run([name, args]) {
  const began = performance.now();
  const { ok, output } = await executeBeside(process.execPath, args, { cwd: root });
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  process.stdout.write(`check: ${name} (${seconds} s)\n${output}`);
  if (!ok) failed.push(name);
}

/** Most checks keep one processor busy, so as many run as there are. */
async function work(waiting) {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await run(next);
}

await run(setUp);
if (failed.length === 0) {
  await Promise.all(Array.from({ length: availableParallelism() }, () => work(checks)));
}
if (failed[0] !== setUp[0] && !process.argv.includes("--without-tests")) {
  const { status } = spawnSync(process.execPath, [bin("vitest/vitest.mjs"), "run"], {
    cwd: root,
    stdio: "inherit",
  });
  if (status !== 0) failed.push("tests");
}
process.stdout.write(failed.length === 0 ? "check: passed\n" : `check: failed: ${failed.join(", ")}\n`);
process.exitCode = failed.length === 0 ? 0 : 1;
