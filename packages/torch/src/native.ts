/**
 * The native addon: its location, the preparation before loading, and its typed interface. Only this package uses it
 * directly.
 */
import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { describeValue, OutOfMemoryError, TorchError, UsageError } from "@astra-rl/base";
import { requireAddressSpace } from "./address-space.js";
import { allowedProcessors, controlGroups } from "./control-groups.js";
import { findEngine, requireVersion, unloadable, type EngineFiles } from "./engine-files.js";
import { operatorNames } from "./operator-names.generated.js";
import { boundedThreads, computingCores, namedThreads, waitingVariables } from "./threads.js";

/** The addon's id of a tensor, generator or file: a number that is looked up, never a pointer. */
export type Handle = number;

/** Instruction sets that change how kernels compute, each including all before it; "baseline" is plain x86-64. */
export const ISAS = ["baseline", "avx2", "avx512", "avx512_bf16", "amx"] as const;
export type Isa = (typeof ISAS)[number];

export interface NativeInformation {
  version: string;
  mkl: boolean;
  oneDnn: boolean;
  isa: Isa;
  bfloat16: boolean;
  cuda: boolean;
  cudaDevices: number;
  configuration: string;
}

/** Memory that the machine and the process's control groups leave it. */
export interface MemoryHeadroom {
  /** Bytes that can be allocated without swapping; 0 if unknown. */
  available: number;
  /** The limit in bytes that `available` is part of; 0 if unknown. */
  limit: number;
  /** What sets the limit, for messages. */
  of: string;
}

type CollectiveCallback = (error: string | null, result: unknown) => void;

export interface NativeAddon {
  setErrorClass(
    constructor: new (message: string) => Error,
    memoryConstructor: new (message: string) => Error,
  ): void;
  registerOperators(names: readonly string[]): void;
  /** Whether the loaded libtorch has the operator of this index. */
  hasOperator(operator: number): boolean;
  call(operator: number, gradients: boolean, ...values: unknown[]): unknown;
  callOnWords(operator: number, gradients: boolean, count: number): unknown;
  exchange(): [words: ArrayBuffer, facts: ArrayBuffer];

  fromData(data: Uint8Array, dtype: number, shape: readonly number[], device: string, target: number): Handle;
  copyData(tensor: Handle, target: Uint8Array): void;
  describe(tensor: Handle): [dtype: number, deviceCode: number, device: string, ...sizes: number[]];
  item(tensor: Handle): number | bigint;
  release(tensor: Handle): void;
  releaseWords(count: number): void;
  liveTensors(): number;
  sharesStorage(a: Handle, b: Handle): boolean;
  isDense(tensor: Handle): boolean;

  requiresGrad(tensor: Handle): boolean;
  isLeaf(tensor: Handle): boolean;
  version(tensor: Handle): number;
  setRequiresGrad(tensor: Handle, value: boolean): void;
  gradient(tensor: Handle, known: Handle | null): Handle | null;
  setGradient(tensor: Handle, gradient: Handle | null): void;
  attachFunction(
    title: string,
    output: Handle,
    inputs: readonly (Handle | null)[],
    saved: readonly Handle[],
    backward: (gradients: readonly (Handle | null)[], saved: readonly Handle[]) => void,
  ): void;
  deliverGradients(gradients: readonly (Handle | null)[]): void;
  backward(outputs: readonly Handle[], gradients: readonly (Handle | null)[], retainGraph: boolean): void;
  gradients(
    outputs: readonly Handle[],
    inputs: readonly Handle[],
    gradOutputs: readonly (Handle | null)[],
    retainGraph: boolean,
    createGraph: boolean,
    allowUnused: boolean,
  ): (Handle | null)[];

  createGenerator(seed: number, device: string): Handle;
  /** null = the CPU's default generator. */
  generatorState(generator: Handle | null): Handle;
  setGeneratorState(generator: Handle | null, state: Handle): void;
  releaseGenerator(generator: Handle): void;
  manualSeed(seed: number): void;

  readFile(descriptor: number, dtype: number, shape: readonly number[], byteOffset: number): Handle;

  fusedAdam(
    parameters: readonly Handle[],
    gradients: readonly Handle[],
    expAvgs: readonly Handle[],
    expAvgSqs: readonly Handle[],
    steps: readonly number[],
    learningRate: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    weightDecay: number,
    decoupled: boolean,
  ): void;
  gradientNorm(gradients: readonly Handle[]): number;

  bfloat16Linear(
    input: Handle,
    weight: Handle,
    transposed: boolean,
    bias: Handle | null,
    wide: boolean,
    residual: Handle | null,
  ): Handle | null;
  floatLinear(
    input: Handle,
    weight: Handle,
    transposed: boolean,
    bias: Handle | null,
    wide: boolean,
    residual: Handle | null,
  ): Handle | null;
  bfloat16Product(left: Handle, right: Handle, wide: boolean): Handle | null;
  bfloat16WeightGradient(gradient: Handle, input: Handle, weight: Handle): Handle | null;
  decodeAttention(
    query: Handle,
    key: Handle,
    value: Handle,
    ranges: Handle,
    scale: number,
    order: Handle | null,
    pieces: Handle | null,
  ): Handle | null;
  copyColumns(to: Handle, from: Handle, runs: Handle): boolean;
  fusedAttention(
    query: Handle,
    key: Handle,
    value: Handle,
    biases: readonly Handle[],
    scale: number,
  ): [output: Handle, measures: Handle] | null;
  fusedAttentionBackward(
    query: Handle,
    key: Handle,
    value: Handle,
    biases: readonly Handle[],
    scale: number,
    output: Handle,
    measures: Handle,
    gradient: Handle,
  ): [query: Handle, key: Handle, value: Handle];

  norm(
    input: Handle,
    weight: Handle,
    bias: Handle | null,
    centred: boolean,
    wide: boolean,
    epsilon: number,
    recording: boolean,
  ): [result: Handle, measures?: Handle];
  normBackward(
    input: Handle,
    gradient: Handle,
    weight: Handle,
    measures: Handle,
    centred: boolean,
  ): [input: Handle, weight: Handle, bias: Handle];

  sortedTopK(input: Handle, k: number): [values: Handle, indices: Handle];
  geluTanh(input: Handle, gradient: Handle | null): Handle;
  swiglu(gate: Handle, up: Handle, gradient: Handle | null): [output: Handle, ofUp?: Handle];
  rotary(input: Handle, cosine: Handle, sine: Handle, backwards: boolean): Handle;
  selectiveLogSoftmax(logits: Handle, indices: Handle): [values: Handle, normalisers: Handle];
  selectiveLogSoftmaxBackward(logits: Handle, indices: Handle, normalisers: Handle, gradient: Handle): Handle;

  joinGroup(
    host: string,
    port: number,
    listens: boolean,
    prefix: string,
    address: string,
    rank: number,
    size: number,
    connectTimeout: number,
    timeout: number,
    lost: (rank: number) => void,
    callback: CollectiveCallback,
  ): void;
  allReduce(tensors: readonly Handle[], callback: CollectiveCallback): void;
  broadcast(tensors: readonly Handle[], root: number, callback: CollectiveCallback): void;
  allGather(bytes: Uint8Array, callback: CollectiveCallback): void;
  announceFailure(): void;
  leaveGroup(): void;

  setAllocationLimit(bytes: number | null): void;
  memoryAllocated(): number;
  maxMemoryAllocated(): number;
  resetPeakMemoryStats(): void;
  emptyCache(): void;
  trimCache(): void;
  /** `memoryHeadroom`: memory left by the given groups; `setMemoryGroups`: the groups that the allocator checks. */
  memoryHeadroom(root: string, version1: readonly string[], version2: readonly string[]): MemoryHeadroom;
  setMemoryGroups(root: string, version1: readonly string[], version2: readonly string[]): void;
  endOnSecondSignal(active: boolean): void;
  information(): NativeInformation;
  openBlas(path: string): [core: string, configuration: string];
  threads(): number;
  setThreads(threads: number): void;
  synchronize(device: string): void;

  /** Replaces each handle by the address of the tensor's first number; −1 where there is no such tensor. */
  locate(handles: Float64Array): void;
  strides(tensor: Handle): number[];
  captureGraph(device: string, warmUps: number, pass: () => void): Handle;
  replayGraph(graph: Handle): void;
  releaseGraph(graph: Handle): void;
}

interface Preload {
  /** "unknown": ASTRA_ISA names no instruction set, or one that this machine lacks. */
  instructionSets(): [inForce: Isa | "unknown", machine: Isa];
  setVariable(name: string, value: string): boolean;
  pauseNanoseconds(): number;
  load(path: string): string | null;
}

let loaded: NativeAddon | null = null;

/** Memory shared with the addon, empty before it is loaded: see exchange.ts. */
export const exchanged = { words: new Float64Array(0), facts: new Float64Array(0) };

/** The addon, loaded at first use. Throws an AstraError that names the setup command if it is missing. */
export function addon(): NativeAddon {
  return loaded ?? (loaded = load());
}

/** Runs `body`, which is synchronous, with `watched` in the place of the addon. */
export function watching<T>(watched: NativeAddon, body: () => T): T {
  const before = addon();
  loaded = watched;
  try {
    return body();
  } finally {
    loaded = before;
  }
}

/** Path of Debian's OpenMP build of OpenBLAS; the pthread build and the reference BLAS are several times slower. */
function openMpBlas(libraryFolder: string): string | null {
  const file = join(libraryFolder, "openblas-openmp", "libblas.so.3");
  return statSync(file, { throwIfNoEntry: false }) === undefined ? null : file;
}

/** Environment variables that make libraries respect ASTRA_ISA, with their names of the instruction sets. */
const LIBRARY_VARIABLES: Record<Isa, Readonly<Record<string, string>>> = {
  baseline: { ATEN_CPU_CAPABILITY: "default", ...limits("SSE41", "Prescott", "SSE4_2") },
  avx2: { ATEN_CPU_CAPABILITY: "avx2", ...limits("AVX2", "Haswell", "AVX2") },
  // libtorch's own loops have a single AVX-512 level, which it does not always use by default.
  avx512: limits("AVX512_CORE", "SkylakeX", "AVX512"),
  avx512_bf16: limits("AVX512_CORE_BF16", "Cooperlake", "AVX512"),
  amx: {},
};

function limits(oneDnn: string, openBlas: string, mkl: string): Record<string, string> {
  return {
    ONEDNN_MAX_CPU_ISA: oneDnn,
    DNNL_MAX_CPU_ISA: oneDnn,
    OPENBLAS_CORETYPE: openBlas,
    MKL_ENABLE_INSTRUCTIONS: mkl,
  };
}

/** Sets environment variables that libraries read when they are loaded; variables set by the user stay unchanged. */
function keepLibrariesWithin(preload: Preload): void {
  const [isa, machine] = preload.instructionSets();
  if (isa === "unknown") {
    const asked = process.env["ASTRA_ISA"];
    const known = ISAS.slice(0, ISAS.indexOf(machine) + 1).join(", ");
    throw new UsageError(
      "unknown-choice",
      `ASTRA_ISA must be one of ${known}, which this machine has, got ${describeValue(asked)}; unset it to use all of them`,
    );
  }
  const variables = Object.entries(process.env["ASTRA_ISA"] ? LIBRARY_VARIABLES[isa] : {});
  for (const [name, value] of variables) preload.setVariable(name, value);
  // Debian's OpenBLAS treats newer processors as Haswell, at half of their speed.
  if (isa === "avx512") preload.setVariable("OPENBLAS_CORETYPE", "SkylakeX");
  if (isa === "avx512_bf16" || isa === "amx") preload.setVariable("OPENBLAS_CORETYPE", "Cooperlake");
}

/** Opens what the addon is loaded after. @throws UsageError for a processor that the prebuilt engine is not for */
function prepare(preload: Preload, { libraryFolder, libraries, prebuilt }: EngineFiles): void {
  // Assigning to process.env sets the process's environment variable, which the runtimes read.
  for (const [name, value] of boundedThreads(process.env)) {
    process.stderr.write(
      `${name}: ${process.env[name]} threads are more than can be of use; taking ${value}\n`,
    );
    process.env[name] = value;
  }
  if (prebuilt !== null && preload.instructionSets()[1] === "baseline") {
    throw new UsageError(
      "unsupported-processor",
      "the prebuilt engine is for processors with x86-64-v3 (AVX2 and FMA: Intel's since Haswell, AMD's since Zen), which this one " +
        "lacks; run `npx astra-rl setup`, which builds an engine for it (needs g++)",
    );
  }
  keepLibrariesWithin(preload);
  for (const [name, value] of waitingVariables(process.env, preload.pauseNanoseconds())) {
    preload.setVariable(name, value);
  }
  const blas = libraryFolder === null ? null : openMpBlas(libraryFolder);
  // Loads the fast BLAS in this process only, whichever BLAS the machine has selected.
  if (blas !== null) preload.load(blas);
  for (const library of libraries) {
    const reason = preload.load(library);
    if (reason !== null) throw new Error(reason);
  }
}

function load(): NativeAddon {
  const files = findEngine();
  try {
    const require = createRequire(import.meta.url);
    prepare(require(join(files.folder, "preload.node")) as Preload, files);
    const native = require(join(files.folder, "astra_torch.node")) as NativeAddon;
    // The headers, from which the version was read before, could be of another one.
    if (files.prebuilt !== null) requireVersion(files.prebuilt, native.information().configuration);
    native.setErrorClass(TorchError, OutOfMemoryError);
    native.registerOperators(operatorNames);
    const [words, facts] = native.exchange();
    Object.assign(exchanged, { words: new Float64Array(words), facts: new Float64Array(facts) });
    const { root, version1, version2 } = controlGroups("memory");
    native.setMemoryGroups(root, version1, version2);
    if (namedThreads(process.env) === null) native.setThreads(computingCores(allowedProcessors()));
    requireAddressSpace(native.threads());
    return native;
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    return unloadable(files, cause);
  }
}
