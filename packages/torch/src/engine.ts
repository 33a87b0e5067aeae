/** Information about the engine, its threads, devices and memory. */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { UsageError } from "@astra-rl/base";
import { allowedProcessors, controlGroups } from "./control-groups.js";
import type { Device } from "./dtype.js";
import { addon, type Isa } from "./native.js";
import { computingCores } from "./threads.js";

export interface EngineInformation {
  /** libtorch's version, e.g. "1.13.0". */
  libtorch: string;
  /** Path of the loaded libtorch_cpu. */
  origin: string;
  /** Path of the loaded addon: one that set-up built, or a prebuilt one of a package. */
  addon: string;
  /** "OpenBLAS (path)", "MKL", or "unknown". */
  blas: string;
  /** Whether the BLAS shares libtorch's OpenMP threads; null if unknown. */
  blasUsesOpenMp: boolean | null;
  /** The core type that OpenBLAS uses kernels for, e.g. "Cooperlake"; null for another BLAS. */
  coreType: string | null;
  oneDnn: boolean;
  threads: number;
  /** Number of cores that this process can use at the same time. */
  physicalCores: number;
  /**
   * The instruction set in use: the best one that the processor and the kernel support, or a lower one set by
   * ASTRA_ISA.
   */
  isa: Isa;
  /** Whether the instruction set in use multiplies bfloat16 natively. */
  bf16: boolean;
  cuda: boolean;
  cudaDevices: number;
  /** libtorch's build configuration. */
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
    addon: libraries.find((path) => basename(path) === "astra_torch.node") ?? "",
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

/** Paths of the libraries loaded in this process, in address order; empty if the system does not show them. */
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

/** Memory left to this process by the machine and its control groups, in bytes; null if unknown. */
export function availableMemory(): { available: number; limit: number; of: string } | null {
  const { root, version1, version2 } = controlGroups("memory");
  const headroom = addon().memoryHeadroom(root, version1, version2);
  return headroom.limit === 0 ? null : headroom;
}

/**
 * Sets the maximum size of one CPU tensor in this process, in bytes; larger ones fail with an OutOfMemoryError. Null:
 * limited only by the memory that the machine and the process's control groups have left, which always applies.
 */
export function setAllocationLimit(bytes: number | null): void {
  addon().setAllocationLimit(bytes);
}

/**
 * From now on, a second SIGINT or SIGTERM ends the process immediately, with code 128 + the signal's number, even while
 * a computation blocks JavaScript. The first one goes to the process's own handlers, which must be installed before and
 * stay until the returned function is called; that function ends this behaviour.
 */
export function endOnSecondSignal(): () => void {
  addon().endOnSecondSignal(true);
  return () => addon().endOnSecondSignal(false);
}

/**
 * Checks that this process can compute on a device.
 *
 * @param what start of the message: the key or option that requests the device
 * @throws UsageError if it cannot
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
    "device-unavailable",
    `${what}: ${device} cannot be used: ${reason}; choose cpu, or see what astra-rl doctor says`,
  );
}

/** Waits until all work queued on the device is done; returns immediately for the CPU. */
export function synchronize(device: Device = "cpu"): void {
  addon().synchronize(device);
}

/**
 * Bytes currently allocated for CPU tensors of this process, including those held only by autograd graphs. Allocations
 * of 256 KiB and more are rounded up to multiples of 64 KiB.
 */
export function memoryAllocated(): number {
  return addon().memoryAllocated();
}

/** Maximum of `memoryAllocated` since the process started or `resetPeakMemoryStats` was called, in bytes. */
export function maxMemoryAllocated(): number {
  return addon().maxMemoryAllocated();
}

/** Restarts the measurement of `maxMemoryAllocated`. */
export function resetPeakMemoryStats(): void {
  addon().resetPeakMemoryStats();
}

/**
 * Returns cached free memory to the system. Call it in long runs when time is not critical, since the pages have to be
 * mapped again.
 */
export function emptyCache(): void {
  addon().emptyCache();
}

/**
 * Returns cached memory beyond what tensors used since the call before the last. Long runs call it after each step: the
 * peak of an unusual step is not kept forever, and the memory that every step needs is not mapped again.
 */
export function trimCache(): void {
  addon().trimCache();
}
