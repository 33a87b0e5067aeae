#!/usr/bin/env node
/**
 * Tiles (AMX) on a Linux machine without them, for tests: prints the path of the library that stands for them, compiled from
 * packages/torch/test/emulator/tiles.c.
 *
 *   LD_PRELOAD=$(node scripts/emulated-tiles.mjs) npx vitest run packages/torch/test
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, renameSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const torch = join(dirname(dirname(fileURLToPath(import.meta.url))), "packages/torch");

/**
 * @returns {{ library: string } | { why: string }} why tiles cannot be emulated here, or need not be
 */
export function emulatedTiles() {
  if (process.platform !== "linux" || process.arch !== "x64")
    return { why: `this is ${process.platform} on ${process.arch}` };
  const flags = new Set(/^flags\s*:(.*)$/mu.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1]?.split(" "));
  if (flags.has("amx_bf16")) return { why: "this machine has them" };
  // What stands beside the tile instructions is not emulated.
  if (!flags.has("avx512_bf16")) return { why: "the processor has no AVX512-BF16" };
  const library = join(torch, "build/emulated-tiles.so");
  mkdirSync(dirname(library), { recursive: true });
  const compiled = `${library}.${process.pid}`;
  const source = join(torch, "test/emulator/tiles.c");
  execFileSync("gcc", ["-O2", "-Wall", "-Wextra", "-mavx512f", "-shared", "-fPIC", "-o", compiled, source], {
    stdio: ["ignore", "ignore", "inherit"],
  });
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
