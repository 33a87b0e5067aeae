import type { EngineInformation } from "@astra-rl/torch";
import type { ComputeTypesChoice } from "@astra-rl/method";

/** What `astra-rl doctor` detected on this machine. */
export interface Facts {
  node: string;
  /** null if the addon could not be loaded; see `engineError`. */
  engine: EngineFacts | null;
  engineError: string | null;
}

export interface EngineFacts extends Omit<EngineInformation, "configuration"> {
  /** What dtype "auto" resolves to for a large model on the CPU. */
  computeTypes: ComputeTypesChoice;
  /** Measured GFLOP/s of a large square matrix product. */
  gemm: { float32: number; bfloat16: number };
}

export interface Problem {
  /** "broken": nothing works until it is fixed; "slow": works, but slower than possible. */
  severity: "broken" | "slow";
  text: string;
}

const OLD_CORES = /^(Haswell|Zen|Sandybridge|Nehalem|Core2|Prescott|generic)$/i;

/** Finds problems and their remedies, one sentence each. */
export function diagnose({ node, engine, engineError }: Facts): Problem[] {
  const problems: Problem[] = [];
  const broken = (text: string) => problems.push({ severity: "broken", text });
  const slow = (text: string) => problems.push({ severity: "slow", text });
  const [major, minor] = node.split(".").map(Number) as [number, number];
  if (major < 20 || (major === 20 && minor < 19)) {
    broken(`Node ${node} is too old; install version 20.19 or later`);
  }
  if (engine === null) {
    broken(`the engine cannot be loaded: ${engineError ?? "unknown reason"}`);
    return problems;
  }
  const { blas, blasUsesOpenMp, coreType, threads, physicalCores, isa, bf16, oneDnn, gemm } = engine;
  if (blasUsesOpenMp === false) {
    slow(
      `${blas} is not the OpenMP build and competes with libtorch for threads; run apt-get install libopenblas0-openmp`,
    );
  }
  if (!/openblas|mkl/i.test(blas))
    slow(`the BLAS (${blas}) is slow; run apt-get install libopenblas0-openmp`);
  if (coreType !== null && bf16 && OLD_CORES.test(coreType)) {
    slow(
      `OpenBLAS uses kernels for an older processor (${coreType}); set OPENBLAS_CORETYPE=Cooperlake or SkylakeX`,
    );
  }
  if (threads < physicalCores) {
    slow(
      `${threads} of ${physicalCores} cores are used; unset OMP_NUM_THREADS, or set it to ${physicalCores}`,
    );
  }
  if (bf16 && !oneDnn) slow("this libtorch has no oneDNN, so bfloat16 is not faster");
  else if (isa === "amx" && gemm.bfloat16 < gemm.float32) {
    slow("bfloat16 is slower than float32 here although the processor has it; is the machine busy?");
  }
  return problems;
}
