import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { OutOfMemoryError, TorchError } from "@astra-rl/base";
import { availableMemory, setAllocationLimit, tensor, zeros } from "../src/index.js";
import { allowedProcessors, controlGroups } from "../src/control-groups.js";
import { addon } from "../src/native.js";
import { makeControlGroup } from "./control-group.js";
import { expectNoLeaks } from "./live-tensors.js";

expectNoLeaks();

const MIB = 2 ** 20;
/** As it is built, for other processes. */
const built = new URL("../dist/index.js", import.meta.url).href;

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true });
});

/** A root folder with simulated system files. */
function systemOf(files: Record<string, string>): string {
  const root = mkdtempSync(join(tmpdir(), "astra-system-"));
  folders.push(root);
  const machine = { "/proc/meminfo": "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  6291456 kB\n" };
  for (const [path, text] of Object.entries({ ...machine, ...files })) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const mount = (type: string, at: string, shown = "/", options = "rw") =>
  `31 23 0:28 ${shown} ${at} rw,relatime shared:9 - ${type} ${type} ${options}\n`;

/** Version 2, one hierarchy for all. */
const version2 = (group: string, files: Record<string, string>, at = "/sys/fs/cgroup") => ({
  "/proc/self/cgroup": `0::${group}\n`,
  "/proc/self/mountinfo": mount("ext4", "/") + mount("cgroup2", at),
  ...Object.fromEntries(Object.entries(files).map(([name, text]) => [`${at}${name}`, `${text}\n`])),
});

/** Version 1, one hierarchy for each kind of limit. */
const version1 = (kind: string, group: string, shown: string, files: Record<string, string>) => ({
  "/proc/self/cgroup": `9:name=systemd:${group}\n4:${kind},${kind}acct:${group}\n0::/\n`,
  "/proc/self/mountinfo":
    mount("cgroup2", "/sys/fs/cgroup/unified") +
    mount("cgroup", `/sys/fs/cgroup/${kind}`, shown, `rw,${kind},${kind}acct`),
  ...Object.fromEntries(
    Object.entries(files).map(([name, text]) => [`/sys/fs/cgroup/${kind}${name}`, `${text}\n`]),
  ),
});

const limitsOf = (files: Record<string, string>) => {
  const system = systemOf(files);
  const { root, version1, version2 } = controlGroups("memory", system);
  const { available, limit, of } = addon().memoryHeadroom(root, version1, version2);
  const processors = allowedProcessors(controlGroups("cpu", system));
  return { left: available / MIB, limit: limit / MIB, of, processors };
};

const NONE1 = "9223372036854771712";
const used = (mebibytes: number) => String(mebibytes * MIB);

describe("memory available to a process", () => {
  it("is the machine's memory without control groups", () => {
    expect(limitsOf({})).toEqual({ left: 6144, limit: 8192, of: "this machine", processors: 0 });
  });

  it("equals this machine's memory here", () => {
    const { available, limit } = availableMemory()!;
    expect(limit).toBeGreaterThan(100 * MIB);
    expect(available).toBeGreaterThan(10 * MIB);
    expect(available).toBeLessThanOrEqual(limit);
  });

  it("is what a version 2 group leaves, counting clean file pages as free", () => {
    const files = version2("/a", {
      "/a/memory.max": used(3072),
      "/a/memory.high": "max",
      "/a/memory.current": used(2000),
      "/a/memory.stat":
        `anon ${used(900)}\nfile ${used(1000)}\ninactive_file ${used(600)}\nactive_file ${used(300)}\n` +
        `file_dirty ${used(40)}\nfile_writeback ${used(10)}\nslab_reclaimable ${used(50)}\nworkingset_refault_file 7`,
    });
    expect(limitsOf(files)).toEqual({
      left: 3072 - (2000 - (600 + 300 - 40 - 10 + 50)),
      limit: 3072,
      of: "the control group /sys/fs/cgroup/a",
      processors: 0,
    });
  });

  it("is the minimum over all ancestor groups and their throttling limits", () => {
    const group = (path: string, max: string, high: string, current: number) => ({
      [`${path}/memory.max`]: max,
      [`${path}/memory.high`]: high,
      [`${path}/memory.current`]: used(current),
      [`${path}/memory.stat`]: "anon 0",
    });
    const files = version2("/a/b/c", {
      ...group("/a", used(4096), used(1024), 700),
      ...group("/a/b", used(2048), "max", 650),
      ...group("/a/b/c", "max", "max", 600),
    });
    expect(limitsOf(files)).toMatchObject({
      left: 324,
      limit: 1024,
      of: "the control group /sys/fs/cgroup/a",
    });
  });

  it("is the machine's if it has less than the groups allow", () => {
    const files = version2("/a", { "/a/memory.max": used(7000), "/a/memory.current": used(100) });
    expect(limitsOf(files)).toMatchObject({ left: 6144, of: "this machine" });
  });

  it.each([
    ["with the host's name, and a mount that exposes this part", "/docker/7", "/docker/7", ""],
    ["below that part", "/docker/7/own", "/docker/7", "/own"],
    ["of which the mount exposes only the inside", "/docker/7", "/", ""],
    ["hidden by the namespace", "/../7", "/", ""],
  ])("is read from the folder of a version 1 group %s", (_, group, shown, folder) => {
    const files = version1("memory", group, shown, {
      [`${folder}/memory.limit_in_bytes`]: used(512),
      [`${folder}/memory.usage_in_bytes`]: used(300),
      [`${folder}/memory.stat`]: `inactive_file 5\ntotal_inactive_file ${used(80)}\ntotal_active_file ${used(20)}\ntotal_dirty ${used(10)}`,
    });
    expect(limitsOf(files)).toMatchObject({ left: 512 - 210, limit: 512 });
  });

  it("is the machine's if a version 1 group has no limit", () => {
    const files = version1("memory", "/a", "/", {
      "/a/memory.limit_in_bytes": NONE1,
      "/a/memory.usage_in_bytes": used(300),
    });
    expect(limitsOf(files)).toMatchObject({ left: 6144, of: "this machine" });
  });

  it("tolerates malformed files", () => {
    for (const text of [
      "",
      "::::",
      "0::",
      "0::/../..",
      "0::proc",
      "a b c - d",
      "4:memory:\n4:memory",
      "\\999 - cgroup2 - -",
    ]) {
      const files = {
        "/proc/self/cgroup": text,
        "/proc/self/mountinfo": `${text}\n1 2 3 / \\040${text} - cgroup2 x rw,memory`,
      };
      expect(limitsOf(files)).toMatchObject({ left: 6144, processors: 0 });
    }
  });

  it.each([
    ["version 2", version2("/a/b", { "/a/b/cpu.max": "max 100000", "/a/cpu.max": "150000 100000" }), 1.5],
    ["version 2 without a limit", version2("/a", { "/a/cpu.max": "max 100000" }), 0],
    [
      "version 1",
      version1("cpu", "/a/b", "/", {
        "/a/b/cpu.cfs_quota_us": "100000",
        "/a/b/cpu.cfs_period_us": "50000",
        "/a/cpu.cfs_quota_us": "300000",
        "/a/cpu.cfs_period_us": "100000",
      }),
      2,
    ],
    [
      "version 1 without a limit",
      version1("cpu", "/a", "/", { "/a/cpu.cfs_quota_us": "-1", "/a/cpu.cfs_period_us": "100000" }),
      0,
    ],
  ])("is the minimum share of processors of all groups: %s", (_, files, share) => {
    expect(limitsOf(files).processors).toBe(share);
  });
});

/** Code that prints how many tensors of a size could be created, and the error at the end. */
const fill = (make: string) => `
  const torch = await import(${JSON.stringify(built)});
  const kept = [];
  try {
    for (;;) kept.push(${make});
  } catch (error) {
    console.log(JSON.stringify([kept.length, error.name, error.message]));
  }
  // A refused request leaves the engine unchanged.
  for (const each of kept) each.dispose();
  console.log(torch.liveTensors(), torch.ones([1 << 20]).sum().item());`;
const inNode = (code: string) => ["--input-type=module", "-e", code];
const parse = (output: string) => {
  const [first, second] = output.trim().split("\n");
  const [made, name, message] = JSON.parse(first!) as [number, string, string];
  return { made, name, message, after: second };
};

describe("missing memory", () => {
  const inSystem = (root: string, make: string) => {
    const { stdout, stderr, status } = spawnSync(process.execPath, inNode(fill(make)), {
      encoding: "utf8",
      env: { ...process.env, ASTRA_SYSTEM_ROOT: root },
    });
    expect(status, stderr).toBe(0);
    return parse(stdout);
  };
  const group = version2("/a", { "/a/memory.max": used(1024), "/a/memory.current": used(24) });

  it("is refused in one allocation, with the needed and available amounts and the source of the limit", () => {
    const { made, name, message, after } = inSystem(systemOf(group), "torch.zeros([2 ** 30])");
    expect([made, name, after]).toEqual([0, "OutOfMemoryError", "0 1048576"]);
    expect(message).toMatch(
      /^aten::zeros: needs 4096 MiB of memory at once, 936 MiB are left of the 1024 MiB of the control group \/sys\/fs\/cgroup\/a \(64 MiB stay free\)/u,
    );
  });

  it("is refused when many tensors have reserved it without writing yet", () => {
    // The simulated files never change: the result depends only on what the allocator itself counts.
    const { made, name } = inSystem(systemOf(group), "torch.empty([15 * 2 ** 20])");
    expect(name).toBe("OutOfMemoryError");
    expect(made).toBe(Math.floor((1000 - 64) / 60));
  });

  it("is refused to the smallest tensor if none is left", () => {
    const full = version2("/a", { "/a/memory.max": used(1024), "/a/memory.current": used(1000) });
    const root = systemOf(full);
    const code = `
      const torch = await import(${JSON.stringify(built)});
      try { torch.ones([1]); } catch (error) { console.log(error.name, error.message); }`;
    const { stdout } = spawnSync(process.execPath, inNode(code), {
      encoding: "utf8",
      env: { ...process.env, ASTRA_SYSTEM_ROOT: root },
    });
    expect(stdout).toMatch(
      /^OutOfMemoryError aten::ones: needs 4 MiB of memory at once, 0 MiB are left of the 1024 MiB/u,
    );
  });
});

const LIMIT = 768 * MIB;
const group = makeControlGroup(LIMIT);
if (typeof group === "string") {
  process.stderr.write(`SKIPPED: memory in a real control group: ${group}\n`);
} else {
  afterAll(() => group.remove());
}

describe("in a real control group", () => {
  const name = typeof group === "string" ? ` (SKIPPED: ${group})` : "";

  it.skipIf(typeof group === "string").each([
    ["of 60 MiB", "torch.ones([15 * 2 ** 20])", 60],
    ["of 4 GiB", "torch.ones([2 ** 30])", 4096],
    ["of 400 MiB", "torch.ones([100 * 2 ** 20])", 400],
    ["of 1 MiB", "torch.ones([2 ** 18])", 1],
    ["of 200 KiB", "torch.ones([50 * 2 ** 10])", 200 / 1024],
    ["of 10 KiB", "torch.ones([2560])", 10 / 1024],
    ["of 60 MiB, written to later", "torch.empty([15 * 2 ** 20])", 60],
  ])(
    `tensors %s end in an error that says so, not in SIGKILL${name}`,
    (_, make, mebibytes) => {
      if (typeof group === "string") throw new Error("internal: skipped");
      const written = make.includes("empty") ? "for (const each of kept) each.fill_(1);" : "";
      const code = fill(make).replace("// Something", `${written}\n// Something`);
      const { output, status, signal } = group.run(process.execPath, inNode(code));
      expect([status, signal], output).toEqual([0, null]);
      const { made, name: error, message, after } = parse(output);
      expect([error, after]).toEqual(["OutOfMemoryError", "0 1048576"]);
      expect(message).toMatch(/of the 768 MiB of the control group /u);
      // Most of the memory that Node itself leaves can be used.
      if (mebibytes <= 60) expect(made * mebibytes).toBeGreaterThan(400);
    },
    180_000,
  );
});

describe("the limit of one tensor", () => {
  it("applies to every way to create one, down to 0, until it is lifted", () => {
    try {
      setAllocationLimit(1000);
      expect(zeros([250]).dispose()).toBeUndefined();
      for (const make of [() => zeros([251]), () => tensor(new Float32Array(251))]) {
        expect(make).toThrow(OutOfMemoryError);
        expect(make).toThrow(TorchError);
        expect(make).toThrow(/needs 1004 bytes at once, the limit is 1000/u);
      }
      setAllocationLimit(0);
      expect(() => zeros([1])).toThrow(/needs 4 bytes at once, the limit is 0/u);
      expect(zeros([0]).dispose()).toBeUndefined();
    } finally {
      setAllocationLimit(null);
    }
    zeros([1 << 20]).dispose();
    for (const bytes of [-1, 1.5, NaN])
      expect(() => setAllocationLimit(bytes)).toThrow(/^setAllocationLimit: /u);
  });
});
