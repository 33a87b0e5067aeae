import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

import { describe, expect, it } from "vitest";

import { computingCores, boundedThreads, namedThreads, waitingVariables } from "../src/threads.js";

/** As it is built, for other processes. */
const built = new URL("../dist/index.js", import.meta.url).href;

/** Runs a module in a separate process without thread settings in its environment, except those given. */
function run(code: string, environment: Record<string, string> = {}): { output: string; errors: string } {
  const own = { ...process.env };
  for (const name of Object.keys(own)) if (/^(OMP|GOMP|KMP|MKL)_/u.test(name)) delete own[name];
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ["--input-type=module", "-e", `const torch = await import(${JSON.stringify(built)});\n${code}`],
    { encoding: "utf8", env: { ...own, ...environment } },
  );
  expect(status, stderr).toBe(0);
  return { output: stdout, errors: stderr };
}

/** The settings that GNU's runtime prints when it is loaded. */
const shown = (errors: string, name: string) => new RegExp(`${name} = '(.*?)'`, "u").exec(errors)?.[1];

describe("spin time of idle threads", () => {
  it("is set before GNU's runtime is loaded: a fraction of a millisecond instead of several", () => {
    const { errors } = run("torch.ones([1]);", { OMP_DISPLAY_ENV: "VERBOSE" });
    const turns = Number(shown(errors, "GOMP_SPINCOUNT"));
    expect(turns).toBeGreaterThanOrEqual(100);
    // An iteration takes at least a nanosecond.
    expect(turns).toBeLessThanOrEqual(350_000);
    // The runtime's default.
    expect(turns).not.toBe(300_000);
  });

  it.each([
    [{ GOMP_SPINCOUNT: "777" }, "777"],
    [{ OMP_WAIT_POLICY: "PASSIVE" }, "0"],
  ])("is the user's if set: %j", (environment, expected) => {
    const { errors } = run("torch.ones([1]);", { OMP_DISPLAY_ENV: "VERBOSE", ...environment });
    expect(shown(errors, "GOMP_SPINCOUNT")).toBe(expected);
  });

  it("is the same on every processor, for any duration of a loop iteration", () => {
    const turns = (nanoseconds: number) =>
      Number(new Map(waitingVariables({}, nanoseconds)).get("GOMP_SPINCOUNT"));
    expect(turns(25) * 25).toBeCloseTo(350_000, -2);
    expect(turns(60) * 60).toBeCloseTo(350_000, -2);
    expect(turns(0)).toBeLessThan(1e7);
  });

  it("leaves runtimes unchanged that the user has configured", () => {
    const names = (environment: Record<string, string>) =>
      waitingVariables(environment, 25).map(([name]) => name);
    expect(names({})).toEqual(["GOMP_SPINCOUNT", "KMP_BLOCKTIME"]);
    expect(names({ GOMP_SPINCOUNT: "1" })).toEqual(["KMP_BLOCKTIME"]);
    expect(names({ KMP_BLOCKTIME: "0" })).toEqual(["GOMP_SPINCOUNT"]);
    expect(names({ KMP_LIBRARY: "turnaround" })).toEqual(["GOMP_SPINCOUNT"]);
    expect(names({ OMP_WAIT_POLICY: "active" })).toEqual([]);
  });
});

describe("the number of computing cores", () => {
  const cpuinfo = (...cores: [processor: number, package_: number, core: number][]) =>
    cores
      .map(
        ([processor, socket, core]) =>
          `processor\t: ${processor}\nphysical id\t: ${socket}\ncore id\t\t: ${core}\n`,
      )
      .join("\n");
  const status = (list: string) => `Name:\tnode\nCpus_allowed:\tff\nCpus_allowed_list:\t${list}\n`;
  /** Two sockets of two cores, each with two hyper-threads. */
  const eight = cpuinfo(
    [0, 0, 0],
    [1, 0, 1],
    [2, 1, 0],
    [3, 1, 1],
    [4, 0, 0],
    [5, 0, 1],
    [6, 1, 0],
    [7, 1, 1],
  );

  it.each([
    ["all, and no hyper-thread twice", "0-7", 0, 4],
    ["those that the process may run on", "0-1,4-5", 0, 2],
    ["a core of which both hyper-threads are allowed once", "2,6", 0, 1],
    ["no more than the quota", "0-7", 2, 2],
    ["only whole threads", "0-7", 2.9, 2],
    ["at least one", "0-7", 0.3, 1],
    ["all cores, if the quota is larger", "0-7", 64, 4],
  ])("%s", (_, list, quota, cores) => {
    expect(computingCores(quota, { cpuinfo: eight, status: status(list) })).toBe(cores);
  });

  it("counts processors if the system does not list cores (ARM)", () => {
    const arm = "processor\t: 0\nBogoMIPS\t: 50\n\nprocessor\t: 1\nBogoMIPS\t: 50\n";
    expect(computingCores(0, { cpuinfo: arm, status: status("0-1") })).toBe(2);
    expect(computingCores(0, { cpuinfo: "", status: "" })).toBeGreaterThanOrEqual(1);
  });

  it("respects the quota of the control groups when the engine is loaded", () => {
    const root = mkdtempSync(join(tmpdir(), "astra-system-"));
    const write = (path: string, text: string) => {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    };
    write("/proc/self/cgroup", "0::/a\n");
    write("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    try {
      const { output } = run(`torch.ones([1]); console.log(torch.threads());`, { ASTRA_SYSTEM_ROOT: root });
      expect(output).toBe("1\n");
    } finally {
      rmSync(root, { recursive: true });
    }
  });

  it.each([
    [{ OMP_NUM_THREADS: "3" }, 3],
    [{ OMP_NUM_THREADS: "4,2" }, 4],
    [{ MKL_NUM_THREADS: "2" }, 2],
    [{ OMP_NUM_THREADS: "" }, null],
    [{ OMP_NUM_THREADS: "many" }, null],
    [{}, null],
  ])("is the user's number if set: %j", (environment, count) => {
    expect(namedThreads(environment)).toBe(count);
  });
});

describe("the maximum number of threads", () => {
  it.each<[Record<string, string>, [string, string][]]>([
    [{ OMP_NUM_THREADS: "64" }, []],
    [{ OMP_NUM_THREADS: "65" }, [["OMP_NUM_THREADS", "64"]]],
    [{ OMP_NUM_THREADS: "100000,2" }, [["OMP_NUM_THREADS", "64,2"]]],
    [
      { MKL_NUM_THREADS: "4096", OPENBLAS_NUM_THREADS: "99999999999999" },
      [
        ["MKL_NUM_THREADS", "64"],
        ["OPENBLAS_NUM_THREADS", "64"],
      ],
    ],
    [{ OMP_NUM_THREADS: "many" }, []],
    [{}, []],
  ])("replaces larger numbers: %j", (environment, bounded) => {
    expect(boundedThreads(environment, 64)).toEqual(bounded);
  });

  it("also limits setThreads", () => {
    const { output } = run(
      `try { torch.setThreads(100000); } catch (error) { console.log(error.name, error.message); }`,
    );
    expect(output).toMatch(/^UsageError setThreads: threads must be at most \d+ here, got 100000\n$/);
  });
});

describe("the number of threads for models", () => {
  const code = `
    const claims = [];
    const say = () => console.log(torch.threads());
    const claim = (...sizes) => torch.claimThreads(sizes.map((size) => { const made = torch.empty([size]); claims.push(made); return made; }));
    const cores = torch.engineInformation().physicalCores;
    torch.setThreads(cores + 1); torch.setThreads(null); say();
    const small = claim(1e6, 9e5); say();
    const large = claim(2e6); say();
    const other = claim(10); say();
    large(); large(); say();
    torch.setThreads(3); say();
    other(); say();
    torch.setThreads(null); say();
    small(); say();
    console.log(cores);`;

  it("is one if all models in use are small, else all cores; the caller's number takes precedence", () => {
    const lines = run(code).output.trim().split("\n").map(Number);
    const cores = lines.pop()!;
    expect(lines).toEqual([cores, 1, cores, cores, 1, 3, 3, 1, cores]);
  });

  it("is the user's number for any models in use", () => {
    const { output } = run(
      `const made = torch.empty([10]); torch.claimThreads([made]); console.log(torch.threads());`,
      { OMP_NUM_THREADS: "2" },
    );
    expect(output).toBe("2\n");
  });
});
