#!/usr/bin/env node
/**
 * Prepares the engine of an installed package, like `npx astra-rl setup`: finds or installs libtorch, and builds the
 * addon. A clone's own set-up (npm run setup) does the same and more.
 *
 *   node scripts/setup.mjs [--quiet] [--force]
 */
import { join } from "node:path";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { engineSteps } from "./setup/engine.mjs";
import { checkNode, checkPlatform } from "./setup/platform.mjs";
import { SetupProblem } from "./setup/problem.mjs";
import { Stamp, takeLock } from "./setup/stamp.mjs";

const stateFolder = join(dirname(dirname(fileURLToPath(import.meta.url))), "build");
const quiet = process.argv.includes("--quiet");
const force = process.argv.includes("--force");
const say = (line) => process.stderr.write(`setup: ${line}\n`);

try {
  checkNode();
  checkPlatform();
  const release = takeLock(stateFolder, say);
  process.once("exit", release);
  const stamp = new Stamp(stateFolder);
  const { compiler, engine, addon } = engineSteps({ say });
  let done = 0;
  for (const step of [compiler, engine, addon]) {
    if (!force && stamp.get(step.name) === step.key() && step.present()) continue;
    await step.make();
    stamp.set(step.name, step.key());
    done += 1;
  }
  if (done > 0) say("done");
  else if (!quiet) say("everything is in place");
} catch (error) {
  const known = error instanceof SetupProblem || error.code === "EACCES" || error.code === "EROFS";
  process.stderr.write(
    error instanceof SetupProblem
      ? `${error.report()}\n`
      : known
        ? `setup: ${error.path ?? stateFolder}: cannot be written (${error.code}); install the package in a writable folder\n`
        : `setup: internal: ${error.stack}\n`,
  );
  process.exitCode = known ? 2 : 1;
}
