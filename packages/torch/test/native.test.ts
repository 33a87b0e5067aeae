import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { describe, expect, it } from "vitest";

import { cudaAvailable, engineInformation, setThreads, synchronize, threads } from "../src/index.js";

const packageFolder = fileURLToPath(new URL("..", import.meta.url));
const source = join(packageFolder, "src", "index.ts");

/** Runs a module of TypeScript in a process of its own, with the sources of this package as `torch`. */
function run(
  code: string,
  environment: Record<string, string> = {},
): { output: string; status: number | null } {
  const result = spawnSync(
    process.execPath,
    [
      "--import",
      "tsx",
      "--input-type=module",
      "-e",
      `const torch = await import(${JSON.stringify(source)});\n${code}`,
    ],
    { cwd: packageFolder, encoding: "utf8", env: { ...process.env, ...environment } },
  );
  return { output: result.stdout + result.stderr, status: result.status };
}

describe("loading", () => {
  it("names the set-up command when the addon is not built, and only when something is asked of it", () => {
    const folder = mkdtempSync(join(tmpdir(), "astra-unbuilt-"));
    const { output, status } = run(
      `console.log("imported"); try { torch.ones([1]); } catch (error) { console.log(error.name, error.message); }`,
      { ASTRA_TORCH_BUILD: folder },
    );
    rmSync(folder, { recursive: true });
    expect(output).toContain("imported");
    expect(output).toMatch(
      /AstraError the engine is not built: there is no .*astra_torch\.node; run `npm run setup`/u,
    );
    expect(status).toBe(0);
  });

  it("leaves the user's thread count and OpenBLAS core type alone", () => {
    const code = `torch.ones([1]); console.log(torch.threads(), torch.engineInformation().coreType);`;
    const { output } = run(code, { OMP_NUM_THREADS: "1", OPENBLAS_CORETYPE: "Haswell" });
    expect(output).toMatch(/^1 (?:Haswell|null)/u);
  });

  it("works in several threads at once, each with tensors of its own", () => {
    const worker = `
      import { parentPort } from "node:worker_threads";
      import { register } from "tsx/esm/api";
      register();
      const torch = await import(${JSON.stringify(source)});
      const kept = torch.ones([3]).mul(2);
      parentPort.postMessage([torch.liveTensors(), kept.sum().item()]);`;
    const { output, status } = run(`
      const { Worker } = await import("node:worker_threads");
      const mine = torch.ones([2]);
      for (let round = 0; round < 2; round++) {
        await new Promise((done, fail) => {
          const worker = new Worker(${JSON.stringify(worker)}, { eval: true });
          worker.on("message", (message) => console.log(JSON.stringify(message)));
          worker.on("error", fail);
          worker.on("exit", done);
        });
      }
      console.log(torch.liveTensors(), mine.toArray());`);
    expect(output).toContain("[2,6]\n[2,6]\n1 [ 1, 1 ]");
    expect(status).toBe(0);
  });
});

describe("the build script", () => {
  const build = (parameters: string[], environment: Record<string, string> = {}) =>
    spawnSync(process.execPath, [join(packageFolder, "scripts", "build.mjs"), ...parameters], {
      encoding: "utf8",
      env: { ...process.env, ...environment },
    });

  it("says where it looked when there is no libtorch", () => {
    const folder = mkdtempSync(join(tmpdir(), "astra-no-libtorch-"));
    const { stderr, status } = build(["--libtorch", folder]);
    rmSync(folder, { recursive: true });
    expect(stderr).toMatch(/^build: .* holds no libtorch with headers \(looked for .*libtorch_cpu\.so/u);
    expect(status).toBe(1);
  });

  it("says how to get a compiler when there is none", () => {
    if (!existsSync("/usr/include/ATen/core/Tensor.h")) return;
    const folder = mkdtempSync(join(tmpdir(), "astra-no-compiler-"));
    const { stderr, status } = build(["--libtorch", "/usr", "--output", folder], { CXX: "no-such-compiler" });
    rmSync(folder, { recursive: true });
    expect(stderr).toBe(
      "build: no-such-compiler was not found; install a C++17 compiler (on Debian: apt-get install g++) or set CXX\n",
    );
    expect(status).toBe(1);
  });
});

describe("the engine", () => {
  it("describes itself", () => {
    const facts = engineInformation();
    expect(facts.libtorch).toMatch(/^\d+\.\d+\.\d+$/u);
    expect(existsSync(facts.origin)).toBe(true);
    expect(facts.blas).toMatch(/OpenBLAS|MKL/u);
    expect(facts.physicalCores).toBeGreaterThanOrEqual(1);
    expect(cudaAvailable()).toBe(facts.cudaDevices > 0);
  });

  it("sets the number of threads", () => {
    const before = threads();
    setThreads(2);
    expect(threads()).toBe(2);
    setThreads(before);
    for (const count of [0, -1, 1.5, 1e9])
      expect(() => setThreads(count)).toThrow(/^setThreads: threads must/u);
  });

  it("has nothing to wait for on the CPU, and refuses devices that are not there", () => {
    synchronize();
    expect(() => synchronize("nowhere")).toThrow(/^synchronize: .*nowhere/u);
    if (!cudaAvailable()) expect(() => synchronize("cuda")).toThrow("synchronize: this libtorch has no CUDA");
  });
});
