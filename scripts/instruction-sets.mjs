#!/usr/bin/env node
/**
 * The numerical tests within the instruction sets that are not this machine's own: AMX (emulated where the processor has none),
 * and the smaller ones; then scripts/other-machines.mjs. Takes about as long as all other tests together.
 *
 *   node scripts/instruction-sets.mjs [--if-changed]      (npm run test:isas sets up first)
 *
 *   --if-changed   do nothing, and say so, where the kernels are those that passed all of this before
 *
 * Where everything ran and passed, scripts/kernels-tested.json records the hash of the kernels' sources; commit it.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { emulatedTiles, hasInstructionSet } from "./emulated-tiles.mjs";
import { kernelHash } from "./kernels.mjs";
import { executeBeside } from "../packages/torch/scripts/setup/command.mjs";

const SETS = ["amx", "avx512_bf16", "avx512", "avx2"];
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const record = join(root, "scripts/kernels-tested.json");
const say = (line) => process.stdout.write(`instruction sets: ${line}\n`);

const sha256 = kernelHash(root);
const recorded = JSON.parse(readFileSync(record, "utf8")).sha256;
if (process.argv.includes("--if-changed") && recorded === sha256) {
  say(
    `the tests within ${SETS.join(", ")} and on other machines are not run: the kernels have not changed since all passed ` +
      `(scripts/kernels-tested.json); npm run test:isas runs them`,
  );
} else {
  await test();
}

async function test() {
  say(recorded === sha256 ? "the kernels have not changed since all passed" : "the kernels have changed");
  const { instructionSets } = createRequire(import.meta.url)(join(root, "packages/torch/build/preload.node"));
  const [inForce] = instructionSets();
  const others = SETS.filter((isa) => isa !== inForce);
  const missing = others.filter(
    (isa) => !hasInstructionSet(isa) && !(isa === "amx" && "library" in emulatedTiles()),
  );
  for (const isa of missing)
    process.stdout.write(`SKIPPED: tests within ${isa}: this machine does not have it\n`);
  const here = others.filter((isa) => !missing.includes(isa));
  let passed = true;
  if (here.length > 0) {
    const { status } = spawnSync(process.execPath, [join(root, "node_modules/vitest/vitest.mjs"), "run"], {
      cwd: root,
      stdio: "inherit",
      env: { ...process.env, ASTRA_NIGHT: "1", ASTRA_TEST_ISAS: here.join(",") },
    });
    passed = status === 0;
  }
  const { ok, output } = await executeBeside(process.execPath, [join(root, "scripts/other-machines.mjs")], {
    cwd: root,
  });
  process.stdout.write(output);
  passed &&= ok;
  say(passed ? "passed" : "failed");
  process.exitCode = passed ? 0 : 1;
  if (!passed || recorded === sha256) return;
  if (missing.length > 0 || /^SKIPPED/mu.test(output)) {
    say("not recorded in scripts/kernels-tested.json, since some were skipped");
  } else {
    writeFileSync(record, `${JSON.stringify({ sha256 }, null, 2)}\n`);
    say("recorded in scripts/kernels-tested.json; commit it");
  }
}
