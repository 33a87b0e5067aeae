#!/usr/bin/env node
/**
 * Makes a fresh clone ready: npm packages, libtorch, the addon, the TypeScript build, the page of reports.
 *
 *   node scripts/setup.mjs [--quiet] [--force]
 *
 * Depends on Node alone, so that it runs before any package is installed. Each step has a key (a hash of what it
 * depends on); a step whose key and results are as they were is passed over without starting a process.
 *
 *   --quiet   no line when nothing is to be done
 *   --force   do every step again
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { executeBeside, onPath } from "../packages/torch/scripts/setup/command.mjs";
import { engineSteps } from "../packages/torch/scripts/setup/engine.mjs";
import { fingerprint, hash } from "../packages/torch/scripts/setup/fingerprint.mjs";
import { checkNode, checkPlatform } from "../packages/torch/scripts/setup/platform.mjs";
import { SetupProblem } from "../packages/torch/scripts/setup/problem.mjs";
import { Stamp, takeLock } from "../packages/torch/scripts/setup/stamp.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const inRoot = (...parts) => join(root, ...parts);
const readJson = (...parts) => JSON.parse(readFileSync(inRoot(...parts), "utf8"));
/** The packages that are published, and so compiled; a prebuilt engine, which is for one system, has no TypeScript. */
const PACKAGES = readJson("package.json").workspaces.filter((path) => {
  const { private: isPrivate, os } = readJson(path, "package.json");
  return !isPrivate && os === undefined;
});
const quiet = process.argv.includes("--quiet");
const force = process.argv.includes("--force");
const stateFolder = inRoot(".cache");
const say = (line) => process.stderr.write(`setup: ${line}\n`);

/** @typedef {import("../packages/torch/scripts/setup/engine.mjs").Step} Step */

/** @type {Step} */
const npmPackages = {
  name: "npm packages",
  key: () => hash(readFileSync(inRoot("package-lock.json"))),
  present: () => existsSync(inRoot("node_modules/.package-lock.json")),
  async make() {
    say("installing the npm packages (npm ci)");
    const npm = onPath("npm");
    if (npm === null) {
      throw new SetupProblem("npm was not found beside Node.", [
        "install Node with its npm, version 20 or later",
      ]);
    }
    const result = await executeBeside(npm, ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
      cwd: root,
    });
    if (!result.ok) {
      const detail = result.output.trim().split("\n").slice(0, 4).join(" | ");
      throw new SetupProblem(`npm ci failed: ${detail || result.reason}`, [
        "check that the registry which npm is set to can be reached (npm ping), then run npm run setup again",
        "look at the whole output of: npm ci",
      ]);
    }
  },
};

/** Installed by someone before set-up ever ran here: nothing to do when it is at least as new as the lock. */
function packagesAreNewerThanLock() {
  const installed = inRoot("node_modules/.package-lock.json");
  return (
    existsSync(installed) && statSync(installed).mtimeMs >= statSync(inRoot("package-lock.json")).mtimeMs
  );
}

const { compiler, engine, addon } = engineSteps({ say, cwd: root });

/** @type {Step} */
const typescript = {
  name: "TypeScript",
  key: () =>
    fingerprint(
      [
        inRoot("tsconfig.base.json"),
        inRoot("package-lock.json"),
        ...PACKAGES.flatMap((path) => [inRoot(path, "src"), inRoot(path, "tsconfig.json")]),
      ],
      (path) => /\.(ts|json)$/.test(path),
    ),
  present: () => PACKAGES.every((path) => existsSync(inRoot(path, "dist/index.js"))),
  async make() {
    say("compiling the TypeScript");
    const result = await executeBeside(process.execPath, [
      inRoot("node_modules/typescript-7/bin/tsc"),
      "-b",
      ...PACKAGES.map((path) => inRoot(path)),
    ]);
    if (!result.ok) {
      throw new SetupProblem(`the TypeScript does not compile:\n${result.output.trim()}`, [
        "correct the sources named above",
      ]);
    }
  },
};

const viewer = inRoot("packages/viewer");

/** @type {Step} */
const page = {
  name: "report page",
  key: () =>
    fingerprint([
      inRoot("package-lock.json"),
      ...["src", "scripts", "index.html", "package.json"].map((part) => join(viewer, part)),
    ]),
  present: () => existsSync(inRoot("packages/report/dist/page/report.html")),
  async make() {
    say("building the page of reports");
    const result = await executeBeside(process.execPath, [join(viewer, "scripts/build.mjs")], { cwd: root });
    if (!result.ok) {
      throw new SetupProblem(`the page of reports could not be built:\n${result.output.trim()}`, [
        "correct the sources of packages/viewer",
        "install the npm packages anew: rm -r node_modules && npm run setup",
      ]);
    }
  },
};

const unchanged = (step, stamp) => !force && stamp.get(step.name) === step.key() && step.present();

async function main() {
  checkNode();
  checkPlatform();
  /** Chains of steps that run beside each other: one that waits for the network, then one that compiles on one processor. */
  const stages = [
    [[npmPackages], [compiler, engine]],
    [[addon], [typescript, page]],
  ];
  let stamp = new Stamp(stateFolder);
  if (stages.flat(2).every((step) => unchanged(step, stamp))) {
    if (!quiet) say("everything is in place");
    return;
  }
  const release = takeLock(stateFolder, say);
  process.once("exit", release);
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
  // Whoever held the lock may have done the work.
  stamp = new Stamp(stateFolder);
  const perform = async (steps) => {
    for (const step of steps) {
      if (unchanged(step, stamp)) continue;
      const alreadyThere =
        !force && step === npmPackages && stamp.get(step.name) === undefined && packagesAreNewerThanLock();
      if (!alreadyThere) await step.make();
      stamp.set(step.name, step.key());
    }
  };
  for (const chains of stages) await Promise.all(chains.map(perform));
  say("done");
}

main().catch((error) => {
  process.stderr.write(
    error instanceof SetupProblem ? `${error.report()}\n` : `setup: internal: ${error.stack}\n`,
  );
  process.exitCode = 1;
});
