import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: {
    // Tests run against the sources, so that a stale build never hides a change.
    alias: {
      "@astra-rl/torch": source("packages/torch/src/index.ts"),
      "@astra-rl/lm": source("packages/lm/src/index.ts"),
      "astra-rl": source("packages/astra-rl/src/index.ts"),
    },
  },
  test: {
    include: ["packages/*/test/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 60_000,
    env: { OMP_NUM_THREADS: "1" },
  },
});
