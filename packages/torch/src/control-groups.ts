/** The process's control groups and their limits: containers have limits that the machine does not show. */
import { readFileSync, statSync } from "node:fs";

/** Folders of a controller's groups: the process's own first, then its ancestors, as far as the mount shows them. */
export interface ControlGroups {
  /** Prefix of every path that is read; "" except in tests. */
  root: string;
  version1: readonly string[];
  version2: readonly string[];
}

const known = new Map<string, ControlGroups>();

/**
 * The groups of this process, looked up once. Tests set another root with ASTRA_SYSTEM_ROOT to simulate other limits.
 */
export function controlGroups(
  controller: "memory" | "cpu",
  root: string = process.env["ASTRA_SYSTEM_ROOT"] ?? "",
): ControlGroups {
  const name = `${controller} ${root}`;
  const groups = known.get(name) ?? findGroups(controller, root);
  known.set(name, groups);
  return groups;
}

/** Processor time that the control groups allow, in processors; 0 without a limit. */
export function allowedProcessors(
  { root, version1, version2 }: ControlGroups = controlGroups("cpu"),
): number {
  const shares = [
    // "max 100000" without a limit
    ...version2.map((folder) => read(`${root}${folder}/cpu.max`).split(/\s+/u)),
    ...version1.map((folder) =>
      ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map((file) => read(`${root}${folder}/${file}`)),
    ),
  ].map(([quota, period]) => Number(quota) / Number(period));
  const limits = shares.filter((share) => share > 0 && Number.isFinite(share));
  return limits.length === 0 ? 0 : Math.min(...limits);
}

function findGroups(controller: string, root: string): ControlGroups {
  const groups: { version1?: string; version2?: string } = {};
  // "4:memory:/path" for version 1, "0::/path" for version 2
  for (const line of read(`${root}/proc/self/cgroup`).split("\n")) {
    const [, controllers, path] = /^[^:]*:([^:]*):(.*)$/u.exec(line) ?? [];
    if (controllers === "") groups.version2 = path;
    if (controllers?.split(",").includes(controller)) groups.version1 = path;
  }
  const found: { version1?: string[]; version2?: string[] } = {};
  // "35 31 0:29 ROOT MOUNT options … - TYPE source OPTIONS"
  for (const line of read(`${root}/proc/self/mountinfo`).split("\n")) {
    const [before, after] = line.split(/ - (.*)/u);
    const [, , , shown, mount] = before!.split(/\s+/u).map(unescaped);
    const [type, , options] = (after ?? "").split(/\s+/u);
    if (shown === undefined || mount === undefined) continue;
    if (type === "cgroup" && groups.version1 && options?.split(",").includes(controller)) {
      found.version1 ??= foldersOf(root, shown, mount, groups.version1);
    }
    if (type === "cgroup2" && groups.version2) {
      found.version2 ??= foldersOf(root, shown, mount, groups.version2);
    }
  }
  return { root, version1: found.version1 ?? [], version2: found.version2 ?? [] };
}

/** @param shown the group that the mount exposes as its root */
function foldersOf(root: string, shown: string, mount: string, group: string): string[] {
  let below = "";
  if (shown === "/") below = group;
  else if (group === shown || group.startsWith(`${shown}/`)) below = group.slice(shown.length);
  // In a container, the group's path may be that of the host, while the mount shows only the container's groups.
  if (!below.startsWith("/") || below === "/" || below.includes("/..") || !isFolder(root + mount + below))
    below = "";
  const folders = [];
  for (; below !== ""; below = below.slice(0, below.lastIndexOf("/"))) folders.push(mount + below);
  return [...folders, mount];
}

/** /proc/self/mountinfo escapes spaces and similar characters, as in \040. */
function unescaped(text: string): string {
  return text.replace(/\\([0-7]{3})/gu, (_, code: string) => String.fromCharCode(parseInt(code, 8)));
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** "" if the file does not exist or cannot be read. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}
