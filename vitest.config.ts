import { existsSync, readFileSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { defineConfig } from "vitest/config";
import { ByProject } from "./scripts/by-project.js";
import { emulatedTiles, hasInstructionSet } from "./scripts/emulated-tiles.mjs";
import { isWithoutEngine } from "./scripts/packages.mjs";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Where the source of each of our packages is: the same as for the compiler. */
const { config } = ts.readConfigFile(source("tsconfig.check.json"), (path) => readFileSync(path, "utf8"));
const { paths } = (config as { compilerOptions: { paths: Record<string, [string]> } }).compilerOptions;

const folders = [
  ...readdirSync(source("packages"))
    .filter((name) => existsSync(source(`packages/${name}/test`)))
    .map((name) => ({ name, folder: `packages/${name}/test` })),
  { name: "scripts", folder: "scripts/test" },
];

/**
 * What a test needs a process of its own for: it changes what belongs to the process, or measures it. The others share one, which
 * spares each of them loading modules and libtorch again, and running cold.
 */
const OWN_PROCESS = [
  /\bprocess\.(chdir|umask|on\(|once|emit|exit|env(\[.*\]|\.\w+) = )/u,
  /(delete |assign\()process\.env/u,
  /\bprocess\.(memoryUsage|resourceUsage|cpuUsage)|[mM]emoryAllocated/u,
  /\bvi\.(spyOn|stub\w+|useFakeTimers|setConfig)|setThreads/u,
  /from "\.\/on-meta\.js"/u,
];

const needsOwnProcess = (text: string) => OWN_PROCESS.some((pattern) => pattern.test(text));

/** Files by whether they need a process of their own. Those of the engine do: it is one for the whole process. */
const [isolated, shared] = [true, false].map((isolate) =>
  folders.flatMap(({ name, folder }) =>
    readdirSync(source(folder), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".test.ts"))
      .map((file) => `${folder}/${file}`)
      .filter(
        (file) => (name === "torch" || needsOwnProcess(readFileSync(source(file), "utf8"))) === isolate,
      ),
  ),
) as [string[], string[]];

/** Two projects: `name` of files that share a process, and `name isolated` of those that do not. */
function projectsOf(
  name: string,
  include: string[],
  exclude: string[] = [],
  env: Record<string, string> = {},
) {
  return [
    {
      extends: true as const,
      test: { name: `${name} isolated`, include, exclude: [...exclude, ...shared], env },
    },
    {
      extends: true as const,
      test: {
        name,
        include,
        exclude: [...exclude, ...isolated],
        env,
        isolate: false,
        setupFiles: [source("scripts/collect-garbage.ts")],
      },
    },
  ];
}

/** What the instruction set may change. */
const numerical = [
  "packages/torch/test/**/*.test.ts",
  "packages/lm/test/*.test.ts",
  "packages/*/test/{algorithm,system,training}/*.test.ts",
];
/** Among them, what it may not: texts, files, processes, memory, and which methods are called. */
const elsewhere = [
  "packages/lm/test/{byte-level-texts,resolve-checkpoint,tokenizer*,texts,fuzzers,model-files,bounded-template}.test.ts",
  "packages/lm/test/{calls-per-token,checkpoint,threads,time-limit,meta-device,prefix-trie,read-parameters}.test.ts",
  "packages/torch/test/distributed/*.test.ts",
  "packages/torch/test/{fuzzers,limits,make-folder,memory,native,safetensors,schedules,scope,tensor-file,threads}.test.ts",
  "packages/*/test/system/{disposal,hub-models,options,overrides,roles-apart,several-models}.test.ts",
  "packages/*/test/training/{callbacks,final-reward,hf-ast-trainer,loggers,own-optimizer}.test.ts",
  "packages/*/test/training/{run-directory,run-lock,training-configuration}.test.ts",
];

/**
 * ASTRA_TEST_ISAS=amx,avx2: the numerical tests within these instruction sets, and no others (scripts/instruction-sets.mjs).
 * Tiles (AMX) are emulated where the processor has none.
 */
function withinInstructionSets(isas: readonly string[]) {
  const known = ["baseline", "avx2", "avx512", "avx512_bf16", "amx"];
  return isas.flatMap((isa) => {
    if (!known.includes(isa))
      throw new Error(`ASTRA_TEST_ISAS: no instruction set ${isa} in ${known.join(", ")}`);
    const within = (name: string, env: Record<string, string>) => projectsOf(name, numerical, elsewhere, env);
    if (hasInstructionSet(isa)) return within(isa, { ASTRA_ISA: isa });
    const tiles = isa === "amx" ? emulatedTiles() : { why: "this machine does not have it" };
    if ("library" in tiles) return within("emulated amx", { ASTRA_ISA: isa, LD_PRELOAD: tiles.library });
    console.warn(`SKIPPED: tests within ${isa}: ${tiles.why}`);
    return [];
  });
}

const isas = (process.env["ASTRA_TEST_ISAS"] ?? "").split(",").filter((isa) => isa !== "");

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
    projects:
      isas.length > 0
        ? withinInstructionSets(isas)
        : folders.flatMap(({ name, folder }) =>
            projectsOf(
              name,
              [`${folder}/**/*.test.ts`],
              [],
              // The addon is out of their reach.
              isWithoutEngine(name) ? { ASTRA_RL_ENGINE: source("no-engine") } : {},
            ),
          ),
    pool: "forks",
    // Otherwise each project transforms the files that it imports anew. The cache names them by their content.
    experimental: { fsModuleCache: true },
    globalSetup: source("scripts/temporary-folder.ts"),
    // At most eight, for the memory that each takes. One more than cores is a tenth faster, but work then takes more
    // processor time, which some tests bound.
    maxWorkers: Math.min(8, Math.max(2, availableParallelism())),
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // libtorch's threads would fight the other worker's for the same cores.
    env: { OMP_NUM_THREADS: "1" },
    sequence: { sequencer: ByProject },
    reporters: ["default", source("scripts/closing-line-reporter.ts")],
  },
});
