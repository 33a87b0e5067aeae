/** What engine runs here, on how many threads and which devices. */
import { readFileSync } from "node:fs";
import { basename } from "node:path";

import { allowedProcessors, controlGroups } from "./control-groups.js";
import type { Device } from "./dtype.js";
import { UsageError } from "./errors.js";
import { addon, type Isa } from "./native.js";
import { computingCores } from "./threads.js";

export interface EngineInformation {
  /** libtorch's version, e.g. "1.13.0". */
  libtorch: string;
  /** Path of the loaded libtorch_cpu. */
  origin: string;
  /** "OpenBLAS (path)", "MKL", or "unknown". */
  blas: string;
  /** Whether the BLAS shares libtorch's OpenMP threads; null where it cannot be told. */
  blasUsesOpenMp: boolean | null;
  /** The kind of core that OpenBLAS computes for, e.g. "Cooperlake"; null for another BLAS. */
  coreType: string | null;
  oneDnn: boolean;
  threads: number;
  /** Cores that this process may compute on at the same time. */
  physicalCores: number;
  /** The instruction set in force: what the processor and the kernel allow, or less where ASTRA_ISA asks for less. */
  isa: Isa;
  /** Whether bfloat16 numbers are multiplied as they are, by the instruction set in force. */
  bf16: boolean;
  cuda: boolean;
  cudaDevices: number;
  /** libtorch's own account of how it was built. */
  configuration: string;
}

export function engineInformation(): EngineInformation {
  const native = addon().information();
  const libraries = loadedLibraries();
  const blas = libraries.filter((path) => /blas|mkl_rt/u.test(basename(path)));
  const openBlas = blas
    .map((path) => [path, ...addon().openBlas(path)] as const)
    .findLast(([, core]) => core !== "");
  return {
    libtorch: native.version,
    origin: libraries.find((path) => basename(path).startsWith("libtorch_cpu")) ?? "",
    blas: openBlas !== undefined ? `OpenBLAS (${openBlas[0]})` : native.mkl ? "MKL" : (blas[0] ?? "unknown"),
    blasUsesOpenMp: openBlas !== undefined ? /USE_OPENMP|openmp/iu.test(openBlas[2] + openBlas[0]) : null,
    coreType: openBlas?.[1] ?? null,
    oneDnn: native.oneDnn,
    threads: addon().threads(),
    physicalCores: computingCores(allowedProcessors()),
    isa: native.isa,
    bf16: native.bfloat16,
    cuda: native.cuda,
    cudaDevices: native.cudaDevices,
    configuration: native.configuration,
  };
}

/** Paths of the libraries in this process, in the order of their places; none where the system does not tell. */
function loadedLibraries(): string[] {
  try {
    const maps = readFileSync("/proc/self/maps", "utf8").matchAll(/ (\/.*\.so[^/\n]*|\/.*\.node)$/gmu);
    return [...new Set(Array.from(maps, ([, path]) => path!))];
  } catch {
    return [];
  }
}

export function cudaAvailable(): boolean {
  return addon().information().cudaDevices > 0;
}

/** What the machine and the control groups that the process is in leave it, in bytes; null where the system does not tell. */
export function availableMemory(): { available: number; limit: number; of: string } | null {
  const { root, version1, version2 } = controlGroups("memory");
  const headroom = addon().memoryHeadroom(root, version1, version2);
  return headroom.limit === 0 ? null : headroom;
}

/**
 * The most bytes that one CPU tensor may take in this process; larger ones are refused with an OutOfMemoryError. Null: no
 * limit but the memory that the machine and the process's control groups have left, which always holds.
 */
export function setAllocationLimit(bytes: number | null): void {
  addon().setAllocationLimit(bytes);
}

/**
 * From here on a second SIGINT or SIGTERM ends the process at once, with code 128 + the signal's number, even while a
 * computation keeps JavaScript from running. The first goes to the process's own handlers, which must be there already
 * and stay until the returned function, which ends this, was called.
 */
export function endOnSecondSignal(): () => void {
  addon().endOnSecondSignal(true);
  return () => addon().endOnSecondSignal(false);
}

/**
 * Checks that this process can compute on a device.
 *
 * @param what begins the message: the key or option that asks for it
 * @throws UsageError where it cannot
 */
export function requireDevice(device: Device, what: string): void {
  if (device === "cpu") return;
  const { cuda, cudaDevices } = addon().information();
  const index = Number(device.split(":")[1] ?? 0);
  if (index < cudaDevices) return;
  const reason = !cuda
    ? "this libtorch was built without CUDA"
    : cudaDevices === 0
      ? "there is no CUDA device, or no driver for it"
      : `there ${cudaDevices === 1 ? "is 1 CUDA device" : `are ${cudaDevices} CUDA devices`}, counted from 0`;
  throw new UsageError(
    `${what}: ${device} cannot be used: ${reason}; choose cpu, or see what astra-rl doctor says`,
  );
}

/** Waits until the device has done all that was asked of it; returns at once for the CPU. */
export function synchronize(device: Device = "cpu"): void {
  addon().synchronize(device);
}

/**
 * Bytes that all CPU tensors of this process take at this moment, those that only graphs hold included. Those of 256 KiB
 * and more are rounded up to whole pieces of 64 KiB.
 */
export function memoryAllocated(): number {
  return addon().memoryAllocated();
}

/** The most that `memoryAllocated` has been since the process began or `resetPeakMemoryStats` was called, in bytes. */
export function maxMemoryAllocated(): number {
  return addon().maxMemoryAllocated();
}

/** From here on `maxMemoryAllocated` tells of what comes. */
export function resetPeakMemoryStats(): void {
  addon().resetPeakMemoryStats();
}

/**
 * Gives memory that is free, but kept for the next tensors, back to the system. For long runs, at moments that do not
 * matter: the pages have to be fetched again.
 */
export function emptyCache(): void {
  addon().emptyCache();
}

/**
 * Gives back what is kept for more than tensors took since the call before the last. A long run calls it after each step:
 * what an unusual step needed does not stay for good, and what every step needs is not fetched again.
 */
export function trimCache(): void {
  addon().trimCache();
}
