import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32, deflateRawSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { fetchArchive, unzip } from "../../packages/torch/scripts/setup/archive.mjs";
import { isBuilt } from "../../packages/torch/scripts/setup/engine.mjs";
import { fromPython, fromVariable } from "../../packages/torch/scripts/setup/libtorch.mjs";

const repository = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "setup-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("an addon counts as built for the libtorch that is chosen, and for no other", () => {
  const write = (name: string, value: unknown) => writeFileSync(join(folder, name), JSON.stringify(value));
  expect(isBuilt(folder)).toBe(false);
  for (const name of ["astra_torch.node", "preload.node"]) writeFileSync(join(folder, name), "");
  write("libtorch.json", { root: "/opt/libtorch/" });
  expect(isBuilt(folder)).toBe(false);
  write("stamp.json", { libtorch: "/usr" });
  expect(isBuilt(folder)).toBe(false);
  write("stamp.json", { libtorch: "/opt/libtorch" });
  expect(isBuilt(folder)).toBe(true);
  rmSync(join(folder, "preload.node"));
  expect(isBuilt(folder)).toBe(false);
});

/** A zip file made by hand: every second entry is deflated, the others are stored. */
function zip(entries: Record<string, string>): Buffer {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  Object.entries(entries).forEach(([name, text], index) => {
    const content = Buffer.from(text);
    const method = index % 2 === 0 ? 8 : 0;
    const data = method === 8 ? deflateRawSync(content) : content;
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(method, 8);
    local.writeUInt32LE(crc32(content), 14);
    local.writeUInt32LE(data.length, 18);
    local.writeUInt32LE(content.length, 22);
    local.writeUInt16LE(Buffer.byteLength(name), 26);
    const central = Buffer.alloc(46);
    central.writeUInt32LE(0x02014b50, 0);
    central.writeUInt16LE(method, 10);
    central.writeUInt32LE(crc32(content), 16);
    central.writeUInt32LE(data.length, 20);
    central.writeUInt32LE(content.length, 24);
    central.writeUInt16LE(Buffer.byteLength(name), 28);
    central.writeUInt32LE(offset, 42);
    locals.push(local, Buffer.from(name), data);
    directory.push(central, Buffer.from(name));
    offset += local.length + Buffer.byteLength(name) + data.length;
  });
  const directoryBytes = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(Object.keys(entries).length, 10);
  end.writeUInt32LE(directoryBytes.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, directoryBytes, end]);
}

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

/** What the detection looks for in a libtorch folder, without its gigabyte. */
const tinyLibtorch = (version = "2.7.1"): Record<string, string> => {
  const [major, minor, patch] = version.split(".");
  return {
    "libtorch/include/ATen/ATen.h": "#pragma once\n",
    "libtorch/include/torch/csrc/api/include/torch/version.h":
      `#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n` +
      `#define TORCH_VERSION_PATCH ${patch}\n`,
    "libtorch/lib/libtorch.so": "torch",
    "libtorch/lib/libtorch_cpu.so": "cpu".repeat(1000),
    "libtorch/lib/libc10.so": "c10",
  };
};

function writeTree(root: string, entries: Record<string, string>): void {
  for (const [name, text] of Object.entries(entries)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
}

describe("the archive", () => {
  const archive = zip(tinyLibtorch());
  let server: Server;
  let base: string;
  beforeAll(async () => {
    server = createServer((request, response) => {
      if (request.url === "/whole.zip") {
        response.writeHead(200, { "content-length": archive.length }).end(archive);
      } else if (request.url === "/cut.zip") {
        response.writeHead(200, { "content-length": archive.length });
        response.write(archive.subarray(0, 100), () => response.destroy());
      } else {
        response.writeHead(404).end();
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => new Promise((resolve) => server.close(resolve)));

  test("arrives whole, checked and unpacked", async () => {
    const lines: string[] = [];
    const target = join(folder, "cache/libtorch-archive");
    await fetchArchive({ url: `${base}/whole.zip`, sha256: sha256(archive) }, target, (line) =>
      lines.push(line),
    );
    for (const [name, text] of Object.entries(tinyLibtorch())) {
      expect(readFileSync(join(target, name), "utf8")).toBe(text);
    }
    expect(readdirSync(join(folder, "cache"))).toEqual(["libtorch-archive"]);
    expect(lines.at(-2)).toContain("100 %");
  });

  test.each([
    ["/whole.zip", "0".repeat(64), /has SHA-256 [0-9a-f]{64}, expected 0{64}/],
    ["/cut.zip", sha256(archive), /broke off after \d+ bytes/],
    ["/absent.zip", sha256(archive), /answered 404/],
  ])("%s with another outcome leaves nothing behind", async (path, checksum, message) => {
    const target = join(folder, "cache/libtorch-archive");
    await expect(fetchArchive({ url: base + path, sha256: checksum }, target, () => {})).rejects.toThrow(
      message,
    );
    expect(readdirSync(join(folder, "cache"))).toEqual([]);
  });

  test("an entry that would leave the folder is refused", async () => {
    writeFileSync(join(folder, "evil.zip"), zip({ "../../outside.txt": "x" }));
    await expect(unzip(join(folder, "evil.zip"), join(folder, "inside"))).rejects.toThrow(
      "leaves the folder",
    );
    expect(existsSync(join(dirname(folder), "outside.txt"))).toBe(false);
  });
});

describe("finding libtorch", () => {
  test("$LIBTORCH is taken with all that the build needs to know", () => {
    writeTree(folder, tinyLibtorch("2.13.0"));
    const root = join(folder, "libtorch");
    expect(fromVariable(root).found).toEqual({
      origin: "LIBTORCH",
      root,
      version: "2.13.0",
      libraryDirectory: join(root, "lib"),
      libraries: ["libtorch.so", "libtorch_cpu.so", "libc10.so"].map((name) => join(root, "lib", name)),
      cuda: false,
      blas: null,
    });
  });

  test.each([
    ["/does/not/exist", {}, "does not exist"],
    ["libtorch", { "libtorch/empty": "" }, "no headers"],
    ["libtorch", tinyLibtorch("1.8.0"), "older than 1.13"],
  ])("$LIBTORCH=%s that cannot be used says why", (path, tree, message) => {
    writeTree(folder, tree);
    const result = fromVariable(path.startsWith("/") ? path : join(folder, path));
    expect(result.found).toBeNull();
    expect(result).toHaveProperty("why", expect.stringContaining(message));
  });

  test("Python's torch: taken, too old, absent, or a Python that does not run", () => {
    const python = (body: string): string => {
      const path = join(folder, "python3");
      writeFileSync(path, `#!/bin/sh\n${body}\n`);
      chmodSync(path, 0o755);
      return path;
    };
    writeTree(folder, tinyLibtorch("2.13.0"));
    expect(fromPython(python(`echo ${folder}/libtorch`)).found?.origin).toBe("python");
    writeTree(folder, tinyLibtorch("1.4.0"));
    expect(fromPython(python(`echo ${folder}/libtorch`))).toHaveProperty(
      "why",
      expect.stringContaining("older"),
    );
    expect(fromPython(python("echo"))).toEqual({ found: null, why: "" });
    expect(fromPython(python("exit 127"))).toHaveProperty("why", expect.stringContaining("does not run"));
    expect(fromPython(null)).toEqual({ found: null, why: "" });
  });
});

/** A clone with its own tiny packages, where each outside program is replaced by one that writes down its call. */
describe("the whole of set-up, on a small clone", () => {
  let clone: string;
  let calls: string;
  let programs: string;
  beforeEach(() => {
    clone = join(folder, "clone");
    calls = join(folder, "calls.txt");
    programs = join(folder, "programs");
    mkdirSync(clone);
    mkdirSync(programs);
    const engineScripts = "packages/torch/scripts/setup";
    cpSync(join(repository, engineScripts), join(clone, engineScripts), { recursive: true });
    mkdirSync(join(clone, "scripts"));
    copyFileSync(join(repository, "scripts/setup.mjs"), join(clone, "scripts/setup.mjs"));
    const program = (name: string, body: string) => {
      writeFileSync(join(programs, name), `#!/bin/sh\necho "${name} $*" >> ${calls}\n${body}\n`);
      chmodSync(join(programs, name), 0o755);
    };
    symlinkSync(process.execPath, join(programs, "node"));
    program(
      "npm",
      `/bin/mkdir -p ${clone}/node_modules/typescript-7/bin; : > ${clone}/node_modules/.package-lock.json
/bin/cp ${clone}/tsc.cjs ${clone}/node_modules/typescript-7/bin/tsc`,
    );
    program("g++", "");
    writeTree(clone, {
      "package.json": JSON.stringify({
        type: "module",
        workspaces: ["torch", "lm", "astra-rl", "viewer"].map((name) => `packages/${name}`),
      }),
      ...Object.fromEntries(
        ["torch", "lm", "astra-rl", "viewer"].map((name) => [
          `packages/${name}/package.json`,
          JSON.stringify({ private: name === "viewer" }),
        ]),
      ),
      "package-lock.json": "{}",
      "tsconfig.base.json": "{}",
      // Stands for the compiler: every package gets its dist/index.js.
      "tsc.cjs": `const fs = require("node:fs"); fs.appendFileSync(${JSON.stringify(calls)}, "tsc\\n");
for (const path of process.argv.slice(3)) { fs.mkdirSync(path + "/dist", { recursive: true }); fs.writeFileSync(path + "/dist/index.js", ""); }`,
      "packages/torch/native/addon.cc": "int x;",
      "packages/torch/scripts/build.mjs": `import fs from "node:fs"; fs.appendFileSync(${JSON.stringify(calls)}, "addon\\n");
const write = (name, text) => fs.writeFileSync(new URL("../build/" + name, import.meta.url), text);
for (const name of ["astra_torch.node", "preload.node"]) write(name, "");
write("stamp.json", JSON.stringify({ libtorch: process.argv.at(-1) }));`,
      "packages/viewer/scripts/build.mjs": `import fs from "node:fs"; fs.appendFileSync(${JSON.stringify(calls)}, "page\\n");
const folder = new URL("../../report/dist/page/", import.meta.url); fs.mkdirSync(folder, { recursive: true });
fs.writeFileSync(new URL("report.html", folder), "");`,
      "packages/torch/src/index.ts": "export {};",
      "packages/lm/src/index.ts": "export {};",
      "packages/astra-rl/src/index.ts": "export {};",
    });
    writeTree(folder, tinyLibtorch());
  });

  const run = (environment: NodeJS.ProcessEnv = {}, ...args: string[]) => {
    rmSync(calls, { force: true });
    const result = spawnSync(process.execPath, [join(clone, "scripts/setup.mjs"), ...args], {
      encoding: "utf8",
      env: { PATH: programs, HOME: folder, LIBTORCH: join(folder, "libtorch"), ...environment },
    });
    const called = existsSync(calls) ? readFileSync(calls, "utf8").trim().split("\n") : [];
    return { ...result, called };
  };

  test("does each step once, then nothing, then only what a change asks for", () => {
    const first = run();
    expect(first.stderr).toContain("setup: done");
    expect(first.status).toBe(0);
    const [downloads, compilations] = [first.called.slice(0, 3), first.called.slice(3)];
    // Those of npm run beside those of the compiler, and TypeScript's beside the addon's.
    expect(downloads.toSorted()).toEqual([
      "g++ --version",
      "g++ -dumpversion",
      "npm ci --no-audit --no-fund --loglevel=error",
    ]);
    expect(compilations.toSorted()).toEqual(["addon", "page", "tsc"]);
    expect(compilations.indexOf("tsc")).toBeLessThan(compilations.indexOf("page"));

    const started = process.hrtime.bigint();
    const second = run({}, "--quiet");
    expect(Number(process.hrtime.bigint() - started) / 1e6).toBeLessThan(5000);
    expect(second).toMatchObject({ status: 0, stderr: "", called: [] });
    expect(run().stderr).toBe("setup: everything is in place\n");

    writeTree(clone, { "packages/lm/src/index.ts": "export const x = 1;" });
    expect(run().called).toEqual(["tsc"]);
    writeTree(clone, { "packages/torch/native/addon.cc": "int y;" });
    expect(run().called).toEqual(["addon"]);
    writeTree(folder, tinyLibtorch("2.8.0"));
    writeTree(folder, { "libtorch/lib/libtorch.so": "another torch" });
    expect(run().called).toEqual(["addon"]);
    // As an installed package's own set-up leaves it, which keeps another account.
    writeTree(clone, { "packages/torch/build/stamp.json": '{"libtorch":"/another"}' });
    expect(run().called).toEqual(["addon"]);
    writeTree(clone, { "package-lock.json": '{"changed":true}' });
    expect(run().called[0]).toMatch(/^npm ci/);
    rmSync(join(clone, "packages/lm/dist"), { recursive: true });
    expect(run().called).toEqual(["tsc"]);
  });

  test("a failing step stops with a cause and remedies, and is tried again", () => {
    const result = run({ LIBTORCH: "/nowhere" });
    expect(result.status).toBe(1);
    expect(result.stderr).toContain("setup: libtorch: LIBTORCH is /nowhere, which does not exist.");
    expect(result.stderr).toMatch(/any one of these helps:\n {2}- .+\n {2}- .+\n/);
    expect(result.stderr).not.toContain("    at ");
    expect(run().called.toSorted()).toEqual(["addon", "page", "tsc"]);
  });

  test("the lock of a dead set-up does not block the next one", () => {
    const dead = Number(execFileSync("/bin/sh", ["-c", "echo $$"], { encoding: "utf8" }));
    writeTree(clone, { ".cache/setup.lock": String(dead) });
    expect(run().status).toBe(0);
    expect(existsSync(join(clone, ".cache/setup.lock"))).toBe(false);
  });

  test("without a compiler and without apt, says what to install", () => {
    rmSync(join(programs, "g++"));
    const result = run();
    expect(result.status).toBe(1);
    expect(result.stderr).toContain("g++ was not found, and this system has no apt-get.");
  });
});

/** @astra-rl/torch as npm installs it, with a prebuilt engine that stands for one, and without anything else on the path. */
describe("set-up of an installed package", () => {
  let torch: string;
  const calls = () => join(folder, "calls.txt");
  beforeEach(() => {
    torch = join(folder, "project/node_modules/@astra-rl/torch");
    cpSync(join(repository, "packages/torch/scripts"), join(torch, "scripts"), { recursive: true });
    writeTree(folder, tinyLibtorch("2.13.0"));
    writeTree(join(folder, "project/node_modules/@astra-rl"), {
      "torch/package.json": '{ "type": "module" }',
      // Tells which engine it is asked to load, and fails if the test says so.
      "torch/dist/index.js": `import { appendFileSync, existsSync } from "node:fs";
export function ones() {
  appendFileSync(${JSON.stringify(calls())}, process.env.ASTRA_RL_ENGINE + "\\n");
  if (existsSync(${JSON.stringify(join(folder, "broken"))})) throw new Error("it needs another C library");
  return { dispose() {} };
}`,
      "torch-linux-x64/package.json": '{ "type": "module" }',
      "torch-linux-x64/engine/engine.json": '{ "version": "0.1.0", "libtorch": "2.13.0", "glibc": "2.28" }',
    });
  });

  const run = (...args: string[]) =>
    spawnSync(process.execPath, [join(torch, "scripts/setup.mjs"), ...args], {
      encoding: "utf8",
      env: { PATH: folder, HOME: folder, LIBTORCH: join(folder, "libtorch") },
    });

  test.runIf(process.arch === "x64")("loads the prebuilt engine, and needs no compiler", () => {
    const { stderr, status } = run();
    expect(stderr).toContain("the prebuilt engine of @astra-rl/torch-linux-x64 can be loaded");
    expect(status).toBe(0);
    const engine = join(folder, "project/node_modules/@astra-rl/torch-linux-x64/engine");
    expect(readFileSync(calls(), "utf8")).toBe(`${engine}\n`);
    expect(run().stderr).toBe("setup: everything is in place\n");
    expect(run("--quiet").stderr).toBe("");
  });

  test.runIf(process.arch === "x64")(
    "asks for a compiler for another libtorch, and names the right one",
    () => {
      writeTree(folder, tinyLibtorch("2.12.0"));
      const { stderr, status } = run();
      expect(stderr).toContain("so it is built: it is for libtorch 2.13.0 without CUDA, not for 2.12.0");
      expect(stderr).toContain("g++ was not found");
      expect(stderr).toMatch(/- use the prebuilt engine: LIBTORCH=.* npx astra-rl setup .*version 2\.13\.0/u);
      expect(status).toBe(2);
      expect(existsSync(calls())).toBe(false);
    },
  );

  test.runIf(process.arch === "x64")(
    "asks for a compiler where the prebuilt engine cannot be loaded, and says why",
    () => {
      writeTree(folder, { broken: "" });
      const { stderr, status } = run();
      expect(stderr).toContain(
        "the prebuilt engine cannot be used, so it is built: it needs another C library",
      );
      expect(stderr).toContain("g++ was not found");
      expect(status).toBe(2);
    },
  );
});
