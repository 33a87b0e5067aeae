import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { defineConfig } from "vitest/config";
import { emulatedTiles, hasInstructionSet } from "./scripts/emulated-tiles.mjs";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Where the source of each of our packages is: the same as for the compiler. */
const { config } = ts.readConfigFile(source("tsconfig.check.json"), ts.sys.readFile);
const { paths } = (config as { compilerOptions: { paths: Record<string, [string]> } }).compilerOptions;

const everything = ["packages/*/test/**/*.test.ts", "scripts/test/**/*.test.ts"];
/** Test files that need no native addon; every other file, so every new one, is a test of the engine. */
const unit = JSON.parse(readFileSync(source("scripts/unit-tests.json"), "utf8")) as string[];
const missing = unit.filter((file) => !existsSync(source(file)));
if (missing.length > 0) throw new Error(`scripts/unit-tests.json lists no file: ${missing.join(", ")}`);

/** What the instruction set may change. */
const numerical = [
  "packages/torch/test/**/*.test.ts",
  "packages/lm/test/*.test.ts",
  "packages/astra-rl/test/{algorithm,system,training}/*.test.ts",
];
/** Among them, what it may not: texts, files, processes, memory, and which methods are called. */
const elsewhere = [
  "packages/lm/test/{byte-level-texts,resolve-checkpoint,tokenizer*,texts,fuzzers,model-files,bounded-template}.test.ts",
  "packages/lm/test/{checkpoint,threads,time-limit,meta-device,prefix-trie,read-parameters}.test.ts",
  "packages/torch/test/distributed/*.test.ts",
  "packages/torch/test/{fuzzers,limits,make-folder,memory,native,safetensors,schedules,scope,tensor-file,threads}.test.ts",
  "packages/method/test/system/{disposal,hub-models,options,overrides,roles-apart,several-models}.test.ts",
  "packages/method/test/training/{callbacks,event-file,final-reward,hf-ast-trainer,loggers,own-optimizer}.test.ts",
  "packages/method/test/training/{run-directory,run-lock,training-configuration}.test.ts",
];

/** Unit tests run with the addon out of reach, so that one that begins to load it fails. */
const unitProject = {
  extends: true as const,
  test: {
    name: "unit",
    include: unit,
    pool: "threads" as const,
    isolate: false,
    env: { ASTRA_TORCH_BUILD: source("no-engine-in-unit-tests") },
  },
};
const engineProject = {
  extends: true as const,
  test: { name: "engine", include: everything, exclude: unit },
};

/**
 * ASTRA_TEST_ISAS=amx,avx2: other instruction sets, within which the numerical tests run once more: smaller ones, and tiles
 * (AMX), which are emulated where the processor has none. All are counted in one closing line.
 */
function otherInstructionSets() {
  const wanted = (process.env["ASTRA_TEST_ISAS"] ?? "").split(",").filter((isa) => isa !== "");
  const preload = source("packages/torch/build/preload.node");
  if (wanted.length === 0 || !existsSync(preload)) return [];
  const { instructionSets } = createRequire(import.meta.url)(preload) as {
    instructionSets: () => [string, string];
  };
  const known = ["baseline", "avx2", "avx512", "avx512_bf16", "amx"];
  const [inForce] = instructionSets();
  return wanted.flatMap((isa) => {
    if (!known.includes(isa))
      throw new Error(`ASTRA_TEST_ISAS: no instruction set ${isa} in ${known.join(", ")}`);
    const again = (name: string, env: Record<string, string>) => [
      { extends: true as const, test: { name, include: numerical, exclude: elsewhere, env } },
    ];
    if (isa === inForce) return [];
    if (hasInstructionSet(isa)) return again(isa, { ASTRA_ISA: isa });
    const tiles = isa === "amx" ? emulatedTiles() : { why: "this machine does not have it" };
    if ("library" in tiles) return again("emulated amx", { ASTRA_ISA: isa, LD_PRELOAD: tiles.library });
    console.warn(`SKIPPED: tests within ${isa}: ${tiles.why}`);
    return [];
  });
}

export default defineConfig({
  resolve: {
    // Tests run against the sources, so that a stale build never hides a change.
    alias: Object.entries(paths).map(([name, [path]]) => ({
      find: new RegExp(`^${name}$`, "u"),
      replacement: source(path),
    })),
  },
  test: {
    // A project adds to what it extends, so the files are named in the projects alone.
    projects: [unitProject, engineProject, ...otherInstructionSets()],
    pool: "forks",
    // At most eight, for the memory that each takes. One more than cores is a tenth faster, but work then takes more
    // processor time, which some tests bound.
    maxWorkers: Math.min(8, Math.max(2, availableParallelism())),
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // libtorch's threads would fight the other worker's for the same cores.
    env: { OMP_NUM_THREADS: "1" },
    reporters: ["default", source("scripts/closing-line-reporter.ts")],
  },
});
