import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { Command } from "@commander-js/extra-typings";
import { AstraError, UsageError } from "@astra-rl/base";

/** `astra-rl setup`: finds or installs libtorch and builds the engine in the installed package. */
export function setupCommand() {
  return new Command("setup")
    .description("Find or install libtorch and build the engine; run it once after installing the package")
    .option("--force", "repeat every step", false)
    .option("--quiet", "print nothing if there is nothing to do", false)
    .action(({ force, quiet }) => {
      // In a separate process, because this one may have loaded the addon being rebuilt.
      const { status } = spawnSync(
        process.execPath,
        [enginePath(), ...(force ? ["--force"] : []), ...(quiet ? ["--quiet"] : [])],
        { stdio: "inherit" },
      );
      if (status === 2) throw new UsageError("setup-failed", "setup: could not be completed; see above");
      if (status !== 0) throw new AstraError("setup: failed; see above");
    });
}

/** Path of the engine package's set-up script. */
function enginePath(): string {
  const require = createRequire(import.meta.url);
  return join(dirname(require.resolve("@astra-rl/torch/package.json")), "scripts", "setup.mjs");
}
