import { mkdtempSync, readFileSync, rmSync, statfsSync } from "node:fs";

const SHARED_MEMORY = "/dev/shm";
const ENOUGH = 4 * 2 ** 30;

/** Whether files in shared memory are enough like those on a disk: Docker's may neither be large nor be executed. */
function suits(): boolean {
  try {
    const mounted = readFileSync("/proc/mounts", "utf8")
      .split("\n")
      .find((line) => line.split(" ")[1] === SHARED_MEMORY);
    const options = mounted?.split(" ")[3]?.split(",");
    if (options === undefined || options.includes("ro") || options.includes("noexec")) return false;
    const { bavail, bsize } = statfsSync(SHARED_MEMORY);
    return bavail * bsize >= ENOUGH;
  } catch {
    return false;
  }
}

/** Temporary files of tests lie in memory where there is room: runs wait for the disk at each checkpoint. */
export default function setup(): (() => void) | undefined {
  if (process.env["TMPDIR"] !== undefined || !suits()) return undefined;
  const folder = mkdtempSync(`${SHARED_MEMORY}/astra-tests-`);
  const remove = () => rmSync(folder, { recursive: true, force: true });
  process.env["TMPDIR"] = folder;
  // Also where the run is interrupted, which skips what vitest does at its end.
  process.once("exit", remove);
  return () => {
    delete process.env["TMPDIR"];
    remove();
  };
}
