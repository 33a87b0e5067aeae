#!/usr/bin/env node
/**
 * Everything of a release but its publication: builds the engine, packs, installs with each package manager, writes the notes,
 * stages without sending anything. The release workflow runs the same scripts, one job each; the nightly one runs this.
 *
 *   node scripts/release/dry-run.mjs [--libtorch PREFIX] [--archive FILE] [--pnpm FILE]
 *
 *   --libtorch, --archive   as in build-engine.mjs and install-test.mjs, where PyTorch's archive cannot be downloaded
 *   --pnpm                  pnpm's file; otherwise the one on the path, or one that is installed for this run
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { spawnSync } from "node:child_process";
import { onPath } from "../../packages/torch/scripts/setup/command.mjs";
import { root, run } from "./shared.mjs";

const { values } = parseArgs({
  options: { libtorch: { type: "string" }, archive: { type: "string" }, pnpm: { type: "string" } },
});

/** pnpm, installed below .cache unless there is one. */
function pnpm() {
  const found = values.pnpm ?? onPath("pnpm");
  if (found !== null) return found;
  const folder = join(root, ".cache/release/pnpm");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
  run("npm", ["install", "--no-audit", "--no-fund", "--ignore-scripts", "pnpm"], { cwd: folder });
  return join(folder, "node_modules/.bin/pnpm");
}

const optional = (name) => (values[name] === undefined ? [] : [`--${name}`, values[name]]);

/** @type {[script: string, ...args: string[]][]} */
const steps = [
  ["build-engine.mjs", ...optional("libtorch")],
  ["pack.mjs"],
  ["install-test.mjs", ...optional("archive")],
  ["install-test.mjs", ...optional("archive"), "--manager", "pnpm", "--manager-file", pnpm()],
  ["notes.mjs", "--unreleased"],
  ["stage.mjs", "--dry-run"],
];
for (const [script, ...args] of steps) {
  process.stdout.write(`release: ${[script, ...args].join(" ")}\n`);
  const stdio = ["ignore", script === "notes.mjs" ? "ignore" : "inherit", "inherit"];
  const { status } = spawnSync(process.execPath, [join(root, "scripts/release", script), ...args], {
    cwd: root,
    stdio,
  });
  if (status !== 0) {
    process.stderr.write(`release: failed: ${script}\n`);
    process.exitCode = 1;
    break;
  }
}
if (process.exitCode !== 1) process.stdout.write("release: passed\n");
