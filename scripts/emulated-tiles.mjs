#!/usr/bin/env node
/**
 * Tiles (AMX) on a Linux machine without them, for tests: prints the path of the library that stands for them, compiled from
 * packages/torch/test/emulator/tiles.c. The engine must have been built.
 *
 *   LD_PRELOAD=$(node scripts/emulated-tiles.mjs) npx vitest run packages/torch/test
 */
import { renameSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { execute } from "../packages/torch/scripts/setup/command.mjs";

const torch = join(dirname(dirname(fileURLToPath(import.meta.url))), "packages/torch");

/** Whether the machine has it; also where another one is in force, as on Intel's processors with pairs and without tiles. */
export function hasInstructionSet(isa) {
  const { instructionSets } = createRequire(import.meta.url)(join(torch, "build/preload.node"));
  const given = process.env["ASTRA_ISA"];
  process.env["ASTRA_ISA"] = isa;
  const [found] = instructionSets();
  if (given === undefined) delete process.env["ASTRA_ISA"];
  else process.env["ASTRA_ISA"] = given;
  return found === isa;
}

/**
 * @returns {{ library: string } | { why: string }} why tiles cannot be emulated here, or need not be
 * @throws where the library does not compile
 */
export function emulatedTiles() {
  if (hasInstructionSet("amx")) return { why: "this machine has them" };
  // What stands beside the tile instructions is not emulated.
  if (!hasInstructionSet("avx512_bf16")) return { why: "this machine has no avx512_bf16" };
  const library = join(torch, "build/emulated-tiles.so");
  const compiled = `${library}.${process.pid}`;
  const flags = ["-O2", "-Wall", "-Wextra", "-mavx512f", "-shared", "-fPIC"];
  const { ok, output, reason } = execute("gcc", [
    ...flags,
    "-o",
    compiled,
    join(torch, "test/emulator/tiles.c"),
  ]);
  if (!ok) throw new Error(`the emulated tiles did not compile: ${output || reason}`);
  renameSync(compiled, library);
  return { library };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const tiles = emulatedTiles();
  if ("library" in tiles) console.log(tiles.library);
  else {
    console.error(`no emulated tiles: ${tiles.why}`);
    process.exitCode = 1;
  }
}
