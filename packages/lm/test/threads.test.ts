import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

import { describe, expect, it } from "vitest";

const file = (path: string) => JSON.stringify(fileURLToPath(new URL(path, import.meta.url)));

/** The suite itself runs with OMP_NUM_THREADS, which takes precedence. */
function run(code: string): unknown[] {
  const { OMP_NUM_THREADS: _, MKL_NUM_THREADS: __, ...environment } = process.env;
  const { stdout, stderr, status } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
    encoding: "utf8",
    env: environment,
  });
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout) as unknown[];
}

describe("threads", () => {
  it("are set by the largest model in use, views and copies included", () => {
    const [cores, ...seen] = run(`
      const { engineInformation, threads } = await import("@astra-rl/torch");
      const { initializeGPT2, LoRA } = await import(${file("../dist/index.js")});
      const make = (hiddenSize) =>
        initializeGPT2({ vocabSize: 64, contextLength: 8, hiddenSize, layers: 1, heads: 1, bosId: 0, eosId: 1 }, 0);
      const seen = [];
      const small = make(8);
      seen.push(threads());
      const large = make(512);
      seen.push(threads());
      const copy = large.copy("float32");
      large.dispose();
      seen.push(threads());
      copy.dispose();
      seen.push(threads());
      const view = small.withAdapter({ delta: () => null, parameters: () => [], training: false });
      view.dispose();
      seen.push(threads());
      small.dispose();
      seen.push(threads());
      console.log(JSON.stringify([engineInformation().physicalCores, ...seen]));`);
    expect(seen).toEqual([1, cores, cores, 1, 1, cores]);
  });
});
