import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { aptAccess, aptInstall } from "../../packages/torch/scripts/setup/apt.mjs";
import type { Libtorch, Search } from "../../packages/torch/scripts/setup/libtorch.mjs";
import { obtainLibtorch, type Means } from "../../packages/torch/scripts/setup/obtain-libtorch.mjs";

const libtorch = (origin: Libtorch["origin"], blas: string | null = null): Search => ({
  found: {
    origin,
    root: "/x",
    version: "2.7.1",
    libraryDirectory: "/x/lib",
    libraries: [],
    cuda: false,
    blas,
  },
});
const nothing: Search = { found: null, why: "" };

/** A machine on which nothing is found and nothing may be installed, but for what a test gives. */
function machine(change: Partial<Means>): { means: Means; said: string[] } {
  const said: string[] = [];
  const means: Means = {
    say: (line) => said.push(line),
    canBuild: () => true,
    variable: () => nothing,
    python: () => nothing,
    debian: () => nothing,
    cached: () => nothing,
    aptWhyNot: () => "apt-get needs root, and there is no sudo",
    install: () => ({ ok: false, why: "unexpected" }),
    source: () => ({ problem: "there is no official archive" }),
    fetch: () => Promise.reject(new Error("unexpected")),
    ...change,
  };
  return { means, said };
}

describe("where libtorch comes from, in order", () => {
  test("each way goes before those after it", async () => {
    const all = {
      variable: () => libtorch("LIBTORCH"),
      python: () => libtorch("python"),
      debian: () => libtorch("debian", "/blas"),
      cached: () => libtorch("download"),
      source: () => ({ url: "http://127.0.0.1/x.zip", sha256: "0" }),
    };
    expect((await obtainLibtorch(machine(all).means)).origin).toBe("LIBTORCH");
    expect((await obtainLibtorch(machine({ ...all, variable: () => nothing }).means)).origin).toBe("python");
    const without = { ...all, variable: () => nothing, python: () => nothing };
    expect((await obtainLibtorch(machine(without).means)).origin).toBe("debian");
    expect((await obtainLibtorch(machine({ ...without, debian: () => nothing }).means)).origin).toBe(
      "download",
    );
  });

  test("a Python package that cannot be used is passed over, in words", async () => {
    const { means, said } = machine({
      python: () => ({ found: null, why: "/p/torch is version 1.4.0, older than 1.13" }),
      debian: () => libtorch("debian", "/blas"),
    });
    expect((await obtainLibtorch(means)).origin).toBe("debian");
    expect(said).toEqual([
      "passing over the Python package torch: /p/torch is version 1.4.0, older than 1.13",
    ]);
  });

  test("a wrong $LIBTORCH stops at once", async () => {
    const { means } = machine({
      variable: () => ({ found: null, why: "LIBTORCH is /y, which does not exist" }),
    });
    await expect(obtainLibtorch(means)).rejects.toThrow("LIBTORCH is /y, which does not exist");
  });

  test("apt installs both packages, or the BLAS alone where libtorch is there", async () => {
    let isInstalled = false;
    const install = vi.fn<NonNullable<Means["install"]>>(() => {
      isInstalled = true;
      return { ok: true, why: "" };
    });
    const debian = () => (isInstalled ? libtorch("debian", "/blas") : nothing);
    const fresh = machine({ aptWhyNot: () => "", install, debian });
    expect((await obtainLibtorch(fresh.means)).blas).toBe("/blas");
    expect(install.mock.calls[0]![0]).toEqual(["libtorch-dev", "libopenblas0-openmp"]);

    isInstalled = false;
    const slow = () => (isInstalled ? libtorch("debian", "/blas") : libtorch("debian"));
    expect((await obtainLibtorch(machine({ aptWhyNot: () => "", install, debian: slow }).means)).blas).toBe(
      "/blas",
    );
    expect(install.mock.calls[1]![0]).toEqual(["libopenblas0-openmp"]);
  });

  test("Debian's libtorch without the fast BLAS is used where nothing can be installed", async () => {
    expect((await obtainLibtorch(machine({ debian: () => libtorch("debian") }).means)).blas).toBeNull();
  });

  test("without apt the archive is fetched", async () => {
    let isFetched = false;
    const { means } = machine({
      source: () => ({ url: "http://127.0.0.1/x.zip", sha256: "0a1b2c3d4e5f60" }),
      fetch: (_, folder) => {
        expect(folder).toMatch(/libtorch-0a1b2c3d4e5f$/u);
        isFetched = true;
        return Promise.resolve();
      },
      cached: () => (isFetched ? libtorch("download") : nothing),
    });
    expect((await obtainLibtorch(means)).origin).toBe("download");
  });

  test("when all fails, every reason and four remedies", async () => {
    const { means } = machine({
      aptWhyNot: () => "",
      install: () => ({ ok: false, why: "apt-get install failed: no space left" }),
      source: () => ({ url: "http://127.0.0.1/x.zip", sha256: "0" }),
      fetch: () => Promise.reject(new Error("http://127.0.0.1/x.zip answered 404")),
    });
    const problem = await obtainLibtorch(means).then(
      () => null,
      (error: Error & { remedies: string[]; report: () => string }) => error,
    );
    expect(problem?.message).toContain(
      "apt-get install failed: no space left; http://127.0.0.1/x.zip answered 404",
    );
    expect(problem?.remedies).toHaveLength(4);
    expect(
      problem
        ?.report()
        .split("\n")
        .filter((line) => line.startsWith("  - ")),
    ).toHaveLength(4);
  });
});

describe("with a prebuilt engine", () => {
  const prebuilt = { folder: "/engine", version: "0.1.0", libtorch: "2.13.0", glibc: "2.28" };
  const source = () => ({ url: "http://127.0.0.1/x.zip", sha256: "0" });
  const of = (origin: Libtorch["origin"], change: Partial<Libtorch>): Search => ({
    found: { ...libtorch(origin, "/blas").found!, ...change },
  });
  const archive = of("download", { version: "2.13.0" });
  const debian = () => of("debian", { version: "1.13.0" });

  test("the archive comes before Debian's libtorch, for which an engine would have to be built", async () => {
    const { means } = machine({ prebuilt, source, debian, cached: () => archive });
    expect((await obtainLibtorch(means)).origin).toBe("download");
  });

  test.each([
    ["of its version", { version: "2.13.0" }, false, "python"],
    ["of its version, with CUDA, and no compiler", { version: "2.13.0", cuda: true }, false, "download"],
    ["of its version, with CUDA, and a compiler", { version: "2.13.0", cuda: true }, true, "python"],
    ["of another version, and no compiler", { version: "2.14.1" }, false, "download"],
    ["of another version, and a compiler", { version: "2.14.1" }, true, "python"],
  ])("Python's torch %s", async (_, change, hasCompiler, origin) => {
    const { means, said } = machine({
      prebuilt,
      source,
      canBuild: () => hasCompiler,
      python: () => of("python", change),
      cached: () => archive,
    });
    expect((await obtainLibtorch(means)).origin).toBe(origin);
    expect(said).toEqual(
      origin === "python"
        ? []
        : [expect.stringMatching(/^passing over the Python package torch: .*no compiler/u)],
    );
  });

  test("without a network Debian's libtorch is used, in words", async () => {
    const fetch = () => Promise.reject(new Error("http://127.0.0.1/x.zip cannot be reached"));
    const { means, said } = machine({ prebuilt, source, debian, fetch });
    expect((await obtainLibtorch(means)).origin).toBe("debian");
    expect(said.at(-1)).toBe(
      "libtorch 2.13.0, which the prebuilt engine is for, could not be had (http://127.0.0.1/x.zip cannot be reached); " +
        "looking for another one, to build the engine for it",
    );
  });

  test("when all fails, the remedies name its version and the command of an installed package", async () => {
    const fetch = vi.fn(() => Promise.reject(new Error("http://127.0.0.1/x.zip answered 404")));
    const { means } = machine({ prebuilt, source, fetch, command: "npx astra-rl setup" });
    const problem = await obtainLibtorch(means).then(
      () => null,
      (error: Error & { remedies: string[] }) => error,
    );
    expect(fetch).toHaveBeenCalledTimes(1);
    expect(problem?.remedies.join("\n")).toContain("pip install torch==2.13.0");
    expect(problem?.remedies.join("\n")).not.toContain("npm run setup");
  });
});

describe("apt", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "apt-"));
    vi.stubEnv("PATH", [folder, process.env.PATH].join(delimiter));
  });
  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  });
  const program = (name: string, body: string) => {
    writeFileSync(join(folder, name), `#!/bin/sh\n${body}\n`);
    chmodSync(join(folder, name), 0o755);
  };
  const calls = () => readFileSync(join(folder, "calls"), "utf8");
  const log = () => `echo "$0 $*" | sed "s|${folder}/||" >> ${folder}/calls`;

  test.runIf(process.getuid?.() === 0)("lists are refreshed only where a package is unknown", () => {
    program("apt-get", log());
    program("apt-cache", "exit 0");
    expect(aptInstall(["one", "two"], () => {})).toEqual({ ok: true, why: "" });
    expect(calls()).not.toContain("update");
    expect(calls()).toMatch(/install -y -qq --no-install-recommends one two/);
    program("apt-cache", "exit 100");
    aptInstall(["one"], () => {});
    expect(calls()).toMatch(/ update -qq\n.* install .* one\n$/);
  });

  test.runIf(process.getuid?.() === 0)("old lists are refreshed and the installation is tried again", () => {
    program("apt-cache", "exit 0");
    program(
      "apt-get",
      `${log()}\ncase "$*" in *update*) : > ${folder}/fresh;; *) test -e ${folder}/fresh;; esac`,
    );
    expect(aptInstall(["one"], () => {}).ok).toBe(true);
    expect(
      calls()
        .trim()
        .split("\n")
        .map((line) => /install|update/.exec(line)![0]),
    ).toEqual(["install", "update", "install"]);
  });

  test.runIf(process.getuid?.() === 0)("a failure says its last line", () => {
    program("apt-cache", "exit 0");
    program("apt-get", "echo reading; echo 'E: no space left' >&2; exit 100");
    expect(aptInstall(["one"], () => {})).toEqual({
      ok: false,
      why: "apt-get install failed: E: no space left",
    });
  });

  test("who is not root needs a sudo that asks nothing", () => {
    program("apt-get", "exit 0");
    vi.spyOn(process, "getuid").mockReturnValue(1000);
    program("sudo", "exit 1");
    expect(aptAccess()).toEqual({ command: null, why: "apt-get needs root, and sudo asks for a password" });
    program("sudo", "exit 0");
    expect(aptAccess().command).toEqual([join(folder, "sudo"), "-n", join(folder, "apt-get")]);
    vi.restoreAllMocks();
  });
});
