import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** A control group below that of this process: processes run in it are limited to this memory. */
export interface ControlGroup {
  /** Runs a program inside; its output, and the signal that ended it, if one did. */
  run(
    command: string,
    parameters: readonly string[],
    environment?: Record<string, string>,
  ): { output: string; status: number | null; signal: string | null };
  /** Removes it; it must be empty. */
  remove(): void;
}

/** @returns the group, or the reason why none can be created: this needs root and a writable cgroup file system */
export function makeControlGroup(bytes: number): ControlGroup | string {
  const place = writableParent();
  if (typeof place === "string") return place;
  const folder = join(place.parent, `astra-test-${process.pid}-${Date.now()}`);
  try {
    mkdirSync(folder);
  } catch (error) {
    return `no control group can be made in ${place.parent}: ${(error as Error).message}`;
  }
  const remove = () => rmdirSync(folder);
  try {
    writeFileSync(join(folder, place.limitFile), String(bytes));
    if (Number(readFileSync(join(folder, place.limitFile), "utf8")) !== bytes)
      throw new Error("the limit was not taken");
    // Otherwise excess memory is swapped rather than refused. Not every kernel counts swap.
    for (const file of ["memory.swap.max", "memory.swappiness"]) {
      try {
        writeFileSync(join(folder, file), "0");
      } catch {
        // Does not exist.
      }
    }
  } catch (error) {
    remove();
    return `the control group ${folder} takes no limit: ${(error as Error).message}`;
  }
  return {
    run(command, parameters, environment = {}) {
      const { stdout, stderr, status, signal } = spawnSync(
        "/bin/sh",
        ["-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', folder, command, ...parameters],
        { encoding: "utf8", env: { ...process.env, ...environment } },
      );
      return { output: stdout + stderr, status, signal };
    },
    remove,
  };
}

function writableParent(): { parent: string; limitFile: string } | string {
  let groups: string;
  let mounts: string[][];
  try {
    groups = readFileSync("/proc/self/cgroup", "utf8");
    mounts = readFileSync("/proc/self/mounts", "utf8")
      .split("\n")
      .map((line) => line.split(" "));
  } catch {
    return "this system has no control groups";
  }
  const version1 = /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/mu.exec(groups)?.[1];
  const mount1 = mounts.find(
    ([, , type, options]) => type === "cgroup" && options?.split(",").includes("memory"),
  );
  if (version1 !== undefined && mount1 !== undefined)
    return { parent: join(mount1[1]!, version1), limitFile: "memory.limit_in_bytes" };
  const version2 = /^0::(.*)$/mu.exec(groups)?.[1];
  const mount2 = mounts.find(([, , type]) => type === "cgroup2");
  if (version2 === undefined || mount2 === undefined) return "no control groups are mounted";
  // A group cannot have both processes and limits for its children: next to ours, or further up.
  for (let folder = join(mount2[1]!, version2); folder.startsWith(mount2[1]!); folder = dirname(folder)) {
    try {
      const controllers = readFileSync(join(folder, "cgroup.subtree_control"), "utf8").trim().split(" ");
      if (controllers.includes("memory")) return { parent: folder, limitFile: "memory.max" };
    } catch {
      // Not readable: further up.
    }
  }
  return "no control group above this process hands its memory limit on (cgroup.subtree_control)";
}
