#!/usr/bin/env node
/**
 * Prepares the engine of an installed package, like `npx astra-rl setup`: finds or fetches libtorch, and builds the
 * engine unless the prebuilt one can be loaded with it. A clone's own set-up (npm run setup) always builds.
 *
 *   node scripts/setup.mjs [--quiet] [--force]
 */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { engineSteps } from "./setup/engine.mjs";
import { checkNode, checkPlatform } from "./setup/platform.mjs";
import { prebuiltEngine, prebuiltName } from "./setup/prebuilt.mjs";
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
  const prebuilt = prebuiltEngine();
  const command = "npx astra-rl setup";
  const { compiler, engine, addon, obstacle } = engineSteps({ say, command, prebuilt });
  let done = 0;
  const perform = async (...steps) => {
    for (const step of steps) {
      if (!force && stamp.get(step.name) === step.key() && step.present()) continue;
      await step.make();
      stamp.set(step.name, step.key());
      done += 1;
    }
  };
  await perform(engine);
  const reason = prebuilt === null ? `${prebuiltName()} is not installed` : await obstacle();
  if (reason === null) {
    if (done > 0) say(`the prebuilt engine of ${prebuiltName()} can be loaded`);
  } else {
    if (!stamp.get(addon.name)) say(`the prebuilt engine cannot be used, so it is built: ${reason}`);
    await perform(compiler, addon);
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
