import { readFileSync } from "node:fs";
import { UsageError } from "@astra-rl/base";

/**
 * Bytes that OpenBLAS maps per thread in its first product, plus the thread's stack: 148 MiB measured for 0.3.21. If
 * mapping fails, OpenBLAS retries forever.
 */
const BYTES_PER_THREAD = 160 * 2 ** 20;
/** Other mappings of the first products. */
const BYTES_BESIDE = 192 * 2 ** 20;

/** Address space left to this process by a limit (`ulimit -v`), in bytes; Infinity without a limit. */
function addressSpaceLeft(): number {
  try {
    const limit = /^Max address space\s+(\d+)/mu.exec(readFileSync("/proc/self/limits", "utf8"))?.[1];
    const used = /^VmSize:\s+(\d+) kB/mu.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
    return limit === undefined || used === undefined ? Infinity : Number(limit) - Number(used) * 1024;
  } catch {
    return Infinity;
  }
}

/** @throws UsageError if the first product would not find enough address space for its buffers */
export function requireAddressSpace(threads: number, left = addressSpaceLeft()): void {
  const needed = BYTES_PER_THREAD * threads + BYTES_BESIDE;
  if (left >= needed) return;
  const mebibytes = (bytes: number) => Math.max(0, Math.round(bytes / 2 ** 20));
  throw new UsageError(
    "address-space-limit",
    `the limit on this process's address space (ulimit -v) leaves ${mebibytes(left)} MiB, and ${threads} ` +
      `thread${threads === 1 ? "" : "s"} of the engine need ${mebibytes(needed)} MiB; raise the limit by ` +
      `${mebibytes(needed - left)} MiB (ulimit -v unlimited)${threads === 1 ? "" : ", or set OMP_NUM_THREADS to fewer"}`,
  );
}
