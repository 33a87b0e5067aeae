import { readFileSync, readlinkSync } from "node:fs";

/** Boot and PID namespace of this process; null if the system does not provide them. */
export const PROCESSES = ((): string | null => {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${boot} ${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return null;
  }
})();

/** Boot id and start time of a process, on Linux; null on other systems. */
export function beginningOf(pid: number): string | null {
  try {
    // /proc may be mounted from another PID namespace, where the same pids are other processes.
    if (readlinkSync("/proc/self") !== String(process.pid)) return null;
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const status = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The process name, in parentheses, may contain anything; the start time is the 20th field after it.
    return `${boot} ${status.slice(status.lastIndexOf(")") + 2).split(" ")[19]}`;
  } catch {
    return null;
  }
}

/** Whether the process of a pid lives, and is the one that began then. */
export function isRunning({ pid, began }: { pid: number; began: string | null }): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: alive, but owned by another user.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  const now = beginningOf(pid);
  return began === null || now === null || began === now;
}
