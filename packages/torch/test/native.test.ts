import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { cudaAvailable, engineInformation, setThreads, synchronize, threads } from "../src/index.js";
import { ISAS, type Isa } from "../src/native.js";

const packageFolder = fileURLToPath(new URL("..", import.meta.url));
const built = join(packageFolder, "dist", "index.js");

/** Runs a module in a separate process, with this package as it is built as `torch`. */
function run(
  code: string,
  environment: Record<string, string | undefined> = {},
): { output: string; status: number | null } {
  const result = spawnSync(
    process.execPath,
    ["--input-type=module", "-e", `const torch = await import(${JSON.stringify(built)});\n${code}`],
    { cwd: packageFolder, encoding: "utf8", env: { ...process.env, ...environment } },
  );
  return { output: result.stdout + result.stderr, status: result.status };
}

describe("loading", () => {
  it("names the set-up command if the addon is not built, at first use only", () => {
    const folder = mkdtempSync(join(tmpdir(), "astra-unbuilt-"));
    const { output, status } = run(
      `console.log("imported"); try { torch.ones([1]); } catch (error) { console.log(error.name, error.message); }`,
      { ASTRA_RL_ENGINE: folder },
    );
    rmSync(folder, { recursive: true });
    expect(output).toContain("imported");
    expect(output).toMatch(
      /UsageError the engine is not built: there is no .*astra_torch\.node \(ASTRA_RL_ENGINE\); .*\n.*run `npm run setup`/u,
    );
    expect(status).toBe(0);
  });

  it("keeps the user's thread count and OpenBLAS core type", () => {
    const code = `torch.ones([1]); console.log(torch.threads(), torch.engineInformation().coreType);`;
    const { output } = run(code, { OMP_NUM_THREADS: "1", OPENBLAS_CORETYPE: "Haswell" });
    expect(output).toMatch(/^1 (?:Haswell|null)/u);
  });

  it("works in several threads at once, each with its own tensors", () => {
    const worker = `
      import { parentPort } from "node:worker_threads";
      const torch = await import(${JSON.stringify(built)});
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

describe("ASTRA_ISA", () => {
  const machine = JSON.parse(
    run(`console.log(JSON.stringify(torch.engineInformation().isa))`, { ASTRA_ISA: undefined }).output,
  ) as Isa;
  const lower = ISAS.slice(0, ISAS.indexOf(machine) + 1);
  const report = `const { isa, bf16, coreType, configuration } = torch.engineInformation();
    console.log(JSON.stringify({ isa, bf16, coreType, aten: /CPU capability usage: (.*)/u.exec(configuration)[1] }));`;
  const facts = (environment: Record<string, string>) => {
    const { output, status } = run(`torch.ones([1]); ${report}`, { ...unset, ...environment });
    expect([status, output]).toEqual([0, expect.stringMatching(/^\{/u)]);
    return JSON.parse(output) as { isa: string; bf16: boolean; coreType: string | null; aten: string };
  };
  // Without any settings by a user.
  const unset = { ATEN_CPU_CAPABILITY: undefined, OPENBLAS_CORETYPE: undefined };
  const ATEN: Record<Isa, RegExp> = {
    baseline: /^(?:NO AVX|DEFAULT)$/iu,
    avx2: /^AVX2$/u,
    avx512: /^AVX(?:2|512)$/u,
    avx512_bf16: /^AVX(?:2|512)$/u,
    amx: /^AVX(?:2|512)$/u,
  };
  const CORES = {
    baseline: "Prescott",
    avx2: "Haswell",
    avx512: "SkylakeX",
    avx512_bf16: "Cooperlake",
    amx: "Cooperlake",
  };

  it.runIf(process.arch === "x64").each(lower)("limits the engine and its libraries to %s", (isa) => {
    const found = facts({ ASTRA_ISA: isa });
    expect(found.isa).toBe(isa);
    expect(found.bf16).toBe(isa === "amx" || isa === "avx512_bf16");
    expect(found.aten).toMatch(ATEN[isa]);
    if (found.coreType !== null) expect(found.coreType).toBe(CORES[isa]);
  });

  it.runIf(lower.includes("avx2"))("leaves the variables of the libraries as the user has set them", () => {
    const found = facts({ ASTRA_ISA: "avx2", ATEN_CPU_CAPABILITY: "default", OPENBLAS_CORETYPE: "Nehalem" });
    expect(found.aten).toMatch(ATEN.baseline);
    if (found.coreType !== null) expect(found.coreType).toBe("Nehalem");
  });

  it("refuses an instruction set that this machine lacks, and lists those it has", () => {
    for (const asked of ["sse9", "AVX2", ...ISAS.slice(lower.length)]) {
      const { output } = run(
        `try { torch.ones([1]); } catch (error) { console.log(error.name, error.message); }`,
        { ASTRA_ISA: asked },
      );
      expect(output).toMatch(
        new RegExp(
          `^UsageError ASTRA_ISA must be one of baseline, .*which this machine has, got "${asked}"`,
          "u",
        ),
      );
    }
  });

  it.runIf(lower.includes("avx2"))(
    "reaches our own loops: where products are fused, sums have other last bits",
    () => {
      const sums = (isa: string) =>
        run(
          `const waves = (rows) => torch.tensor(Array.from({ length: rows }, (_, row) =>
          Array.from({ length: 1000 }, (_, at) => Math.sin(row * 1000 + at))));
        const [input, weight] = [waves(2), waves(64)];
        // Of float32 numbers: products of bfloat16 numbers are exact, fused or not.
        const sums = torch.noGrad(() => torch.autocastLinear(input, weight, null, { dtype: "float32" }));
        console.log(JSON.stringify(Array.from(sums.toTypedArray())));`,
          { ASTRA_ISA: isa },
        ).output;
      const [plain, fused] = [sums("baseline"), sums("avx2")];
      expect(plain).not.toBe(fused);
      const numbers = [plain, fused].map((text) => JSON.parse(text) as number[]);
      numbers[0]!.forEach((number, at) => expect(Math.abs(number - numbers[1]![at]!)).toBeLessThan(1e-4));
    },
  );

  it.runIf(lower.includes("avx2"))("multiplies bfloat16 in libtorch's own operators as well", () => {
    const { output } = run(
      `const [a, b] = [0, 1].map(() => torch.ones([4, 64, 64], { dtype: "bfloat16" }));
      console.log(a.matmul(b).sum().item());`,
      { ASTRA_ISA: "avx2" },
    );
    expect(output).toBe(`${4 * 64 ** 3}\n`);
  });
});

describe("the build script", () => {
  const build = (parameters: string[], environment: Record<string, string> = {}) =>
    spawnSync(process.execPath, [join(packageFolder, "scripts", "build.mjs"), ...parameters], {
      encoding: "utf8",
      env: { ...process.env, ...environment },
    });

  it("reports where it looked if there is no libtorch", () => {
    const folder = mkdtempSync(join(tmpdir(), "astra-no-libtorch-"));
    const { stderr, status } = build(["--libtorch", folder]);
    rmSync(folder, { recursive: true });
    expect(stderr).toMatch(/^build: .* holds no libtorch with headers \(looked for .*libtorch_cpu\.so/u);
    expect(status).toBe(1);
  });

  it("explains how to get a compiler if there is none", () => {
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
    // The numerical tests are also run with smaller instruction sets; this checks that these are really in use.
    if (process.env["ASTRA_ISA"]) expect(facts.isa).toBe(process.env["ASTRA_ISA"]);
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

  it("returns immediately on the CPU, and refuses missing devices", () => {
    synchronize();
    expect(() => synchronize("nowhere")).toThrow(/^synchronize: .*nowhere/u);
    if (!cudaAvailable()) expect(() => synchronize("cuda")).toThrow("synchronize: this libtorch has no CUDA");
  });
});
