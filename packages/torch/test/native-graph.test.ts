/** How the engine captures and repeats passes, compiled with declarations in the place of CUDA's: no GPU is needed. */
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { cudaGraphFlags } from "../scripts/cuda-graphs.mjs";

const torch = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "astra-graph-"));
afterAll(() => rmSync(folder, { recursive: true }));

beforeAll(() => {
  const stamp = JSON.parse(readFileSync(join(torch, "build/stamp.json"), "utf8")) as {
    libtorch: string;
    libraryFolder: string;
  };
  const api = dirname(createRequire(import.meta.url).resolve("node-api-headers/package.json"));
  const include = join(stamp.libtorch, "include");
  const folders = [
    join(torch, "test/cuda-declarations"),
    join(api, "include"),
    ...(stamp.libtorch === "/usr" ? [] : [include, join(include, "torch/csrc/api/include")]),
  ];
  const isNew = !readFileSync(join(stamp.libraryFolder, "libc10.so")).includes("torchCheckFailEPKcS2_jRKSs");
  const flags = "-std=c++17 -O0 -fPIC -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter -Werror".split(
    " ",
  );
  const defined = ["NAPI_VERSION=8", "ASTRA_CUDA_GRAPHS", `_GLIBCXX_USE_CXX11_ABI=${isNew ? 1 : 0}`];
  const object = join(folder, "graph.o");
  const compiled = execute("g++", [
    ...flags,
    ...defined.map((each) => `-D${each}`),
    "-iquote",
    join(torch, "native"),
    ...folders.flatMap((each) => ["-isystem", each]),
    "-c",
    join(torch, "native/graph.cpp"),
    "-o",
    object,
  ]);
  expect(compiled.output).toBe("");
  const objects = join(torch, "build/objects");
  const others = readdirSync(objects).filter((name) => name.endsWith(".o") && !name.startsWith("graph.cpp"));
  const libraries = ["torch_cpu", "c10"].map((name) => join(stamp.libraryFolder, `lib${name}.so`));
  const addon = join(folder, "astra_torch.node");
  const linked = execute("g++", [
    "-shared",
    "-fopenmp",
    "-Wl,-z,nodelete",
    `-Wl,-rpath,${stamp.libraryFolder}`,
    "-o",
    addon,
    object,
    ...others.map((name) => join(objects, name)),
    ...libraries,
  ]);
  expect(linked.output).toBe("");
  copyFileSync(join(torch, "build/preload.node"), join(folder, "preload.node"));
}, 300_000);

function execute(program: string, args: readonly string[], environment: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(program, args, {
    encoding: "utf8",
    env: { ...process.env, ...environment },
  });
  return { ok: status === 0, output: stdout + stderr };
}

/** What a program with the engine as `native` writes, line by line, and what it is told on the way. */
function run(code: string, planted = ""): string[] {
  const program = `
    const say = (text) => require("node:fs").writeSync(2, text + "\\n");
    const native = require(${JSON.stringify(join(folder, "astra_torch.node"))});
    native.setErrorClass(Error, RangeError);
    const attempt = (body) => { try { return body(); } catch (error) { say("threw " + error.message); } };
    ${code}`;
  const { output, ok } = execute(process.execPath, ["-e", program], { PLANTED: planted });
  expect([ok, output]).toEqual([true, expect.any(String)]);
  return output.trim().split("\n");
}

/** All graphs share one pool of memory, and one stream. */
const BEGUN = ["on cuda", "synchronize default", "synchronize own", "begin on own, pool 1"];
const FIRST = BEGUN.toSpliced(1, 0, "take a stream");

it("warms up on a stream of its own, captures there, and repeats on the current one", () => {
  expect(
    run(`
      const first = native.captureGraph("cuda:0", 2, () => say("pass"));
      native.replayGraph(first);
      native.releaseGraph(first);
      native.releaseGraph(first);
      attempt(() => native.replayGraph(first));`).join(", "),
  ).toBe(
    "on cuda:0, take a stream, synchronize default, pass, pass, synchronize own, begin on own, pool 1, pass, end, " +
      "replay on default, destroy, threw replayGraph: the graph was disposed of",
  );
  const twice = `for (let time = 0; time < 2; time++) native.replayGraph(native.captureGraph("cuda", 0, () => {}));`;
  const ended = ["end", "replay on default"];
  expect(run(twice)).toEqual([...FIRST, ...ended, ...BEGUN, ...ended]);
});

it("ends the capture, and frees the graph, when the pass throws within it", () => {
  const code = `
    let runs = 0;
    attempt(() => native.captureGraph("cuda", 1, () => { if (++runs === 2) throw new Error("planted in the pass"); }));
    native.captureGraph("cuda", 0, () => {});`;
  expect(run(code)).toEqual([...FIRST, "end", "destroy", "threw planted in the pass", ...BEGUN, "end"]);
});

it("tells what failed first, and leaves its stream, when ending fails, too", () => {
  const code = `
    attempt(() => native.captureGraph("cuda", 0, () => { throw new Error("planted in the pass"); }));
    attempt(() => native.captureGraph("cuda", 0, () => {}));`;
  expect(run(code, "end")).toEqual([
    ...FIRST,
    "end",
    "destroy",
    "threw planted in the pass",
    ...BEGUN,
    "end",
    "destroy",
    "threw captureGraph: planted in end",
  ]);
});

it("does not go on to a capture when a run before it throws", () => {
  const code = `attempt(() => native.captureGraph("cuda", 3, () => { throw new Error("planted"); }));`;
  expect(run(code)).toEqual(["on cuda", "take a stream", "synchronize default", "destroy", "threw planted"]);
});

it("refuses other devices, and a libtorch of another CUDA", () => {
  expect(run(`attempt(() => native.captureGraph("cpu", 0, () => {}));`)).toEqual([
    "threw captureGraph: device must be a CUDA device, got cpu",
  ]);
  expect(run(`attempt(() => native.captureGraph("cuda", 0, () => {}));`, "version")).toEqual([
    "threw captureGraph: the engine was built with the headers of CUDA 12040, libtorch with those of 11080",
  ]);
});

it("is compiled in for a libtorch with CUDA from 2.4 on, where there are headers of CUDA", () => {
  const root = join(folder, "site-packages");
  const write = (path: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), "");
  };
  const [prefix, home] = [join(root, "torch"), join(root, "home")];
  const layout = { prefix, libraryFolder: join(prefix, "lib"), includeFolders: [join(prefix, "include")] };
  const flags = (version = "2.11.0") => cudaGraphFlags(layout, version, { CUDA_HOME: home });
  write("home/include/cuda_runtime_api.h");
  write("torch/include/ATen/cuda/CUDAGraph.h");
  expect(flags()).toEqual([]);
  write("torch/lib/libtorch_cuda.so");
  expect(flags()).toEqual(["-DASTRA_CUDA_GRAPHS", "-isystem", join(home, "include")]);
  expect(["2.3.1", "1.13.0", "unknown"].flatMap(flags)).toEqual([]);
  // Those of the wheel are of the version that it was built with.
  write("nvidia/cuda_nvcc/include/crt/host_defines.h");
  write("nvidia/cuda_runtime/include/cuda_runtime_api.h");
  const [runtime, compiler] = ["cuda_runtime", "cuda_nvcc"].map((name) =>
    join(root, "nvidia", name, "include"),
  );
  expect(flags("2.4.0")).toEqual(["-DASTRA_CUDA_GRAPHS", "-isystem", runtime, "-isystem", compiler]);
  rmSync(join(prefix, "include"), { recursive: true });
  expect(flags()).toEqual([]);
});
