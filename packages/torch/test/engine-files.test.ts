import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { UsageError } from "@astra-rl/base";
import { findEngine, libraryShortcoming, requireVersion } from "../src/engine-files.js";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "engine-files-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(path: string, content: unknown = "") {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
}

/** What is read of a libtorch. */
function makeLibtorch(name: string, version: string, libraries = ["libc10.so", "libtorch_cpu.so"]): string {
  const lines = version
    .split(".")
    .map((part, at) => `#define TORCH_VERSION_${["MAJOR", "MINOR", "PATCH"][at]} ${part}`);
  write(`${name}/include/torch/csrc/api/include/torch/version.h`, lines.join("\n"));
  for (const library of libraries) write(`${name}/lib/${library}`);
  return join(folder, name);
}

/** An engine that set-up built for a libtorch. */
function makeBuild(root: string, version: string) {
  write("build/astra_torch.node");
  write("build/stamp.json", { libtorch: root, version, libraryFolder: join(root, "lib") });
}

const record = (root: string, version: string) =>
  write("build/libtorch.json", { root, version, libraryDirectory: join(root, "lib") });

const prebuilt = (libtorch = "2.13.0") => ({
  folder: join(folder, "prebuilt"),
  version: "0.1.0",
  libtorch,
  glibc: "2.28",
});

const find = (
  environment: Record<string, string> = {},
  released: ReturnType<typeof prebuilt> | null = prebuilt(),
) =>
  findEngine({
    build: join(folder, "build"),
    prebuilt: () => released,
    version: "0.1.0",
    environment: { ASTRA_RL_CACHE: join(folder, "cache"), ...environment },
  });

function refusal(action: () => unknown): UsageError {
  try {
    action();
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("the engine that is loaded", () => {
  it("is that of ASTRA_RL_ENGINE before any other", () => {
    const root = makeLibtorch("libtorch", "2.13.0");
    makeBuild(root, "2.13.0");
    record(root, "2.13.0");
    write("other/astra_torch.node");
    expect(find({ ASTRA_RL_ENGINE: join(folder, "other") })).toMatchObject({
      folder: join(folder, "other"),
      prebuilt: null,
    });
    const error = refusal(() => find({ ASTRA_RL_ENGINE: join(folder, "none") }));
    expect(error.rule).toBe("engine-not-built");
    expect(error.message).toContain(join(folder, "none", "astra_torch.node"));
    expect(error.message).toContain("\n  - unset ASTRA_RL_ENGINE");
  });

  it("is a prebuilt one in ASTRA_RL_ENGINE, checked like any prebuilt one", () => {
    write("release/engine.json", { version: "0.1.0", libtorch: "2.13.0", glibc: "2.28" });
    const environment = { ASTRA_RL_ENGINE: join(folder, "release") };
    expect(find({ ...environment, LIBTORCH: makeLibtorch("right", "2.13.0") }).prebuilt?.libtorch).toBe(
      "2.13.0",
    );
    expect(refusal(() => find({ ...environment, LIBTORCH: makeLibtorch("wrong", "2.12.0") })).rule).toBe(
      "libtorch-mismatch",
    );
  });

  it("is the one built for the libtorch that set-up found, before the prebuilt one", () => {
    const root = makeLibtorch("libtorch", "2.13.0");
    makeBuild(root, "2.13.0");
    record(root, "2.13.0");
    expect(find()).toEqual({
      folder: join(folder, "build"),
      libraryFolder: join(root, "lib"),
      libraries: [],
      prebuilt: null,
    });
  });

  it("is the prebuilt one if set-up has since found another libtorch, whose libraries are loaded first", () => {
    makeBuild(makeLibtorch("old", "1.13.0"), "1.13.0");
    const root = makeLibtorch("libtorch", "2.13.0");
    record(root, "2.13.0");
    expect(find()).toEqual({
      folder: join(folder, "prebuilt"),
      libraryFolder: join(root, "lib"),
      libraries: [join(root, "lib/libc10.so"), join(root, "lib/libtorch_cpu.so")],
      prebuilt: prebuilt(),
    });
  });

  it("needs no set-up where LIBTORCH names the right version", () => {
    const root = makeLibtorch("libtorch", "2.13.0");
    expect(find({ LIBTORCH: root }).libraryFolder).toBe(join(root, "lib"));
  });

  it("needs no set-up where another project has fetched the archive", () => {
    const sha256 = "0a1b2c3d4e5f".padEnd(64, "0");
    const root = makeLibtorch("cache/libtorch-0a1b2c3d4e5f/libtorch", "2.13.0", [
      "libc10.so",
      "libtorch_cpu.so",
      "libtorch.so",
    ]);
    write("cache/libtorch-0a1b2c3d4e5f/libtorch/include/ATen/ATen.h");
    const environment = { ASTRA_RL_LIBTORCH_URL: "http://127.0.0.1/x.zip", ASTRA_RL_LIBTORCH_SHA256: sha256 };
    expect(find(environment).libraryFolder).toBe(join(root, "lib"));
  });
});

describe("what is refused before a file is opened", () => {
  it.each([
    ["another version", () => makeLibtorch("x", "2.13.1"), /holds libtorch 2\.13\.1;/u],
    [
      "CUDA",
      () => makeLibtorch("x", "2.13.0", ["libc10.so", "libtorch_cpu.so", "libtorch_cuda.so"]),
      /2\.13\.0 with CUDA;/u,
    ],
    ["no headers", () => join(folder, "nothing"), /holds no libtorch that can be used;/u],
  ])("a libtorch for the prebuilt engine with %s", (_, make, wording) => {
    const error = refusal(() => find({ LIBTORCH: make() }));
    expect(error.rule).toBe("libtorch-mismatch");
    expect(error.message).toMatch(wording);
    expect(error.message.match(/\n {2}- /gu)).toHaveLength(2);
  });

  it("a prebuilt engine of another version than the package", () => {
    const root = makeLibtorch("libtorch", "2.13.0");
    const error = refusal(() => find({ LIBTORCH: root }, { ...prebuilt(), version: "0.2.0" }));
    expect([error.rule, error.message]).toEqual([
      "engine-mismatch",
      expect.stringContaining("is of version 0.2.0, and @astra-rl/torch of 0.1.0"),
    ]);
  });

  it("a prebuilt engine without any libtorch, or with half of one", () => {
    expect(refusal(() => find()).rule).toBe("libtorch-not-found");
    const root = makeLibtorch("half", "2.13.0", ["libc10.so"]);
    const error = refusal(() => find({ LIBTORCH: root }));
    expect([error.rule, error.message]).toEqual([
      "libtorch-not-found",
      expect.stringContaining("libtorch_cpu.so"),
    ]);
  });

  it("an engine whose libtorch was upgraded in place", () => {
    const root = makeLibtorch("libtorch", "2.12.0");
    makeBuild(root, "2.12.0");
    record(root, "2.12.0");
    expect(find({}, null).folder).toBe(join(folder, "build"));
    makeLibtorch("libtorch", "2.13.0");
    const error = refusal(() => find({}, null));
    expect(error.rule).toBe("libtorch-mismatch");
    expect(error.message).toContain(`built for libtorch 2.12.0, and ${root} holds 2.13.0 now`);
  });

  it("nothing at all, with the command to run", () => {
    const error = refusal(() => find({}, null));
    expect([error.rule, error.message]).toEqual([
      "engine-not-built",
      expect.stringContaining("npm run setup"),
    ]);
  });
});

it("a loaded library that calls itself another version than its headers is refused", () => {
  requireVersion(prebuilt(), "Build settings: TORCH_VERSION=2.13.0, USE_CUDA=OFF");
  expect(refusal(() => requireVersion(prebuilt(), "TORCH_VERSION=2.12.1, USE_CUDA=OFF")).rule).toBe(
    "libtorch-mismatch",
  );
});

it("names a C library that is too old for the prebuilt engine, or another one", () => {
  expect(libraryShortcoming({ glibc: "2.28" }, "2.28")).toBeNull();
  expect(libraryShortcoming({ glibc: "2.9" }, "2.28")).toBeNull();
  expect(libraryShortcoming({ glibc: "2.28" }, "2.17")).toBe(
    "it needs the GNU C library 2.28 or later, and this system has 2.17",
  );
  expect(libraryShortcoming({ glibc: "2.28" }, null)).toContain("another C library");
});
