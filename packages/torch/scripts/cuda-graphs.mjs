// Whether native/graph.cpp can be compiled to repeat passes on a GPU: decided by files alone, since every set-up asks.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** The first libtorch whose graphs share a pool of memory as ours do. */
const LEAST_VERSION = [2, 4];

/**
 * Flags that native/graph.cpp is compiled with; none where libtorch has no CUDA or is too old, or where there are no headers of
 * CUDA: the wheels of PyTorch bring them in packages of their own, other installations have them in $CUDA_HOME.
 *
 * @param {{ prefix: string, libraryFolder: string, includeFolders: readonly string[] }} layout of libtorch
 * @param {string} version of libtorch
 * @param {Readonly<Record<string, string | undefined>>} [environment]
 * @returns {string[]}
 */
export function cudaGraphFlags(
  { prefix, libraryFolder, includeFolders },
  version,
  environment = process.env,
) {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const isRecent = major > LEAST_VERSION[0] || (major === LEAST_VERSION[0] && minor >= LEAST_VERSION[1]);
  if (!isRecent || !existsSync(join(libraryFolder, "libtorch_cuda.so"))) return [];
  if (!includeFolders.some((folder) => existsSync(join(folder, "ATen/cuda/CUDAGraph.h")))) return [];
  const wheels = join(prefix, "..", "nvidia");
  const roots = [
    ...(existsSync(wheels) ? readdirSync(wheels).map((name) => join(wheels, name)) : []),
    ...["CUDA_HOME", "CUDA_PATH"].flatMap((name) => environment[name] || []),
    "/usr/local/cuda",
  ];
  const folders = roots.map((root) => join(root, "include"));
  const found = folders.filter((folder) => existsSync(join(folder, "cuda_runtime_api.h")));
  if (found.length === 0) return [];
  // The wheels divide the headers among several folders.
  const others = folders.filter((folder) => folder.startsWith(wheels) && existsSync(folder));
  const used = found[0].startsWith(wheels)
    ? [found[0], ...others.filter((folder) => folder !== found[0])]
    : [found[0]];
  return ["-DASTRA_CUDA_GRAPHS", ...used.flatMap((folder) => ["-isystem", folder])];
}
