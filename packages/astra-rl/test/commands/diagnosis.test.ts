import { expect, test } from "vitest";
import { diagnose, type EngineFacts } from "../../src/commands/diagnosis.js";

const healthy: EngineFacts = {
  libtorch: "1.13.1",
  origin: "/usr/lib/libtorch_cpu.so",
  addon: "/project/node_modules/@astra-rl/torch/build/astra_torch.node",
  blas: "OpenBLAS (/usr/lib/openblas-openmp/libopenblas.so.0)",
  blasUsesOpenMp: true,
  coreType: "Cooperlake",
  oneDnn: true,
  threads: 2,
  physicalCores: 2,
  isa: "amx",
  bf16: true,
  computeTypes: { rollouts: "bfloat16", updates: "bfloat16", reason: "tiles" },
  cuda: false,
  cudaDevices: 0,
  gemm: { float32: 400, bfloat16: 900 },
};
const problemsOf = (change: Partial<EngineFacts>) =>
  diagnose({ node: "20.19.0", engine: { ...healthy, ...change }, engineError: null });

test("a Node that is older than the packages ask for is told of", () => {
  const problemsWith = (node: string) => diagnose({ node, engine: healthy, engineError: null });
  expect(problemsWith("20.19.0")).toEqual([]);
  expect(problemsWith("20.18.3")).toEqual([
    { severity: "broken", text: "Node 20.18.3 is too old; install version 20.19 or later" },
  ]);
});

test("a healthy machine has no problem", () => {
  expect(problemsOf({})).toEqual([]);
  expect(problemsOf({ blas: "MKL", blasUsesOpenMp: null, coreType: null })).toEqual([]);
});

test.each<[Partial<EngineFacts>, string]>([
  [{ blasUsesOpenMp: false }, "not the OpenMP build"],
  [{ blas: "/usr/lib/libblas.so.3", blasUsesOpenMp: null, coreType: null }, "slow; run"],
  [{ coreType: "Haswell" }, "OPENBLAS_CORETYPE"],
  [{ threads: 1 }, "1 of 2 cores"],
  [{ gemm: { float32: 400, bfloat16: 100 } }, "slower than float32"],
  [{ oneDnn: false }, "no oneDNN"],
])("%o", (change, text) => {
  const problems = problemsOf(change);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatchObject({ severity: "slow", text: expect.stringContaining(text) as string });
});

test("bfloat16 need not be faster in libtorch's own product without tiles", () => {
  expect(problemsOf({ isa: "avx512_bf16", gemm: { float32: 400, bfloat16: 100 } })).toEqual([]);
});

test("no engine, old Node", () => {
  const problems = diagnose({ node: "18.2.0", engine: null, engineError: "run npm run setup" });
  expect(problems.map(({ severity }) => severity)).toEqual(["broken", "broken"]);
  expect(problems[1]!.text).toContain("run npm run setup");
});
