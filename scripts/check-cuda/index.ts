/**
 * Numerics, rollouts, updates, a resumed run and the demo on a GPU, as one table in Markdown.
 *
 *     npm run check:cuda -- [--device cuda] [--output FILE.md]
 *
 * Needs a clone whose set-up found a CUDA build of libtorch. Operators, models and their gradients are compared with the
 * values of PyTorch and transformers that the tests use, runs with the same runs on the CPU. With --device cpu it checks
 * itself. The exit code is 1 if a row does not hold.
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { engineInformation, requireDevice } from "@astra-rl/torch";
import { checkModels } from "./models.js";
import { checkOperators } from "./operators.js";
import { checkRuns } from "./runs.js";
import { measureSpeed } from "./speed.js";
import { figure, guarded, table, type Row } from "./table.js";

const { values } = parseArgs({
  options: {
    device: { type: "string", default: "cuda" },
    only: { type: "string", default: "operators,models,runs,speed" },
    output: { type: "string" },
  },
});
const { device } = values;
try {
  requireDevice(device, "--device");
} catch (error) {
  console.error(`check-cuda: ${(error as Error).message}`);
  process.exit(2);
}
const parts = {
  operators: checkOperators,
  models: checkModels,
  runs: checkRuns,
  speed: measureSpeed,
};
const { libtorch, cudaDevices, isa } = engineInformation();
const rows: Row[] = [
  figure("engine", `libtorch ${libtorch}, ${cudaDevices} CUDA devices, CPU ${isa}; device ${device}`),
];
for (const [name, check] of Object.entries(parts)) {
  if (!values.only.split(",").includes(name)) continue;
  const began = performance.now();
  rows.push(...(await guarded(name, () => check(device))));
  // What a later part does to the process leaves these figures.
  if (values.output !== undefined) writeFileSync(values.output, `${table(rows)}\n`);
  console.error(`check-cuda: ${name} (${((performance.now() - began) / 1000).toFixed(0)} s)`);
}
console.log(table(rows));
if (rows.some(({ holds }) => holds === false)) process.exitCode = 1;
