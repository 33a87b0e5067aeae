import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: {
    // Tests run against the sources, so that a stale build never hides a change.
    alias: [
      { find: /^@astra-rl\/torch\/testing$/, replacement: source("packages/torch/src/testing.ts") },
      { find: /^@astra-rl\/torch$/, replacement: source("packages/torch/src/index.ts") },
      { find: /^@astra-rl\/lm$/, replacement: source("packages/lm/src/index.ts") },
      { find: /^astra-rl$/, replacement: source("packages/astra-rl/src/index.ts") },
    ],
  },
  test: {
    include: ["packages/*/test/**/*.test.ts", "scripts/test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 60_000,
    // libtorch's threads would fight the other worker's for the same cores.
    env: { OMP_NUM_THREADS: "1" },
    reporters: ["default", source("scripts/closing-line-reporter.ts")],
  },
});
