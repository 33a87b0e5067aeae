/**
 * Numerics, decoding with graphs, rollouts, updates, a resumed run, a server, a hardened target and the demo on a GPU, as one
 * table in Markdown.
 *
 *     npm run check:cuda -- [--device cuda] [--only operators,models,graphs,runs,commands,demo,speed] [--output FILE.md]
 *
 * Needs a clone whose set-up found a CUDA build of libtorch. Operators, models and their gradients are compared with the
 * values of PyTorch and transformers that the tests use, runs with the same runs on the CPU. With --device cpu it checks
 * itself. The exit code is 1 if a row does not hold.
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { engineInformation, requireDevice } from "@astra-rl/torch";
import { figure, guarded, table, type Row } from "./table.js";

/** Loads each part, in the order in which they run. */
const parts = {
  operators: async () => (await import("./operators.js")).checkOperators,
  models: async () => (await import("./models.js")).checkModels,
  graphs: async () => (await import("./graphs.js")).checkGraphs,
  runs: async () => (await import("./runs.js")).checkRuns,
  commands: async () => (await import("./runs.js")).checkCommands,
  demo: async () => (await import("./runs.js")).checkDemo,
  speed: async () => (await import("./speed.js")).measureSpeed,
};

function chosen() {
  const { values } = parseArgs({
    options: {
      device: { type: "string", default: "cuda" },
      only: { type: "string", default: Object.keys(parts).join(",") },
      output: { type: "string" },
    },
  });
  requireDevice(values.device, "--device");
  const only = values.only.split(",");
  const unknown = only.find((name) => !Object.hasOwn(parts, name));
  if (unknown !== undefined) {
    throw new TypeError(`--only: there is no part ${unknown}; choose of ${Object.keys(parts).join(", ")}`);
  }
  return { ...values, only };
}

let options: ReturnType<typeof chosen>;
try {
  options = chosen();
} catch (error) {
  console.error(`check-cuda: ${(error as Error).message}`);
  process.exit(2);
}
const { device, only, output } = options;
const { libtorch, cudaDevices, isa } = engineInformation();
const rows: Row[] = [
  figure("engine", `libtorch ${libtorch}, ${cudaDevices} CUDA devices, CPU ${isa}; device ${device}`),
];
for (const [name, load] of Object.entries(parts)) {
  if (!only.includes(name)) continue;
  const check = await load();
  const began = performance.now();
  rows.push(...(await guarded(name, () => check(device))));
  // What a later part does to the process leaves these figures.
  if (output !== undefined) writeFileSync(output, `${table(rows)}\n`);
  console.error(`check-cuda: ${name} (${((performance.now() - began) / 1000).toFixed(0)} s)`);
}
console.log(table(rows));
if (rows.some(({ holds }) => holds === false)) process.exitCode = 1;
