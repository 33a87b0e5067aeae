// Declarations use the types of Node and Symbol.dispose, which a program may compile without.
/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Tensors, operators, autograd and memory over libtorch. It must not know text, specific models, or rewards.
 *
 * @module @astra-rl/torch
 */
export {
  AstraError,
  describeValue,
  NotFiniteError,
  OutOfMemoryError,
  TorchError,
  UsageError,
} from "@astra-rl/base";
export { bytesOf, isDType, type Device, type DType, type TypedArray } from "./dtype.js";
export { Tensor, type NestedNumbers } from "./tensor.js";
export { isTensor, type Reduction, type Scalar } from "./operator-call.js";
export * from "./operators.js";
export {
  arange,
  empty,
  eye,
  full,
  linspace,
  ones,
  rand,
  randint,
  randn,
  randperm,
  tensor,
  zeros,
  type FactoryOptions,
  type NestedInput,
  type RandomOptions,
  type TensorOptions,
} from "./factories.js";
export {
  dispose,
  enableGrad,
  heldTensors,
  isGradEnabled,
  keep,
  liveTensors,
  noGrad,
  scope,
} from "./scope.js";
export { Generator, manualSeed } from "./generator.js";
export { grad, type GradOptions } from "./autograd.js";
export { autocastLinear, type AutocastLinearOptions } from "./kernels/autocast-linear.js";
export { autocastLayerNorm, autocastRmsNorm, type AutocastNormOptions } from "./kernels/autocast-norm.js";
export { cast } from "./cast.js";
export * as distributed from "./distributed.js";
export { checkpoint } from "./checkpoint.js";
export { ColumnRuns, copyColumns, decodeAttention, type SharedColumns } from "./kernels/decode-attention.js";
export { differentiable, type DifferentiableFunction } from "./differentiable.js";
export { fusedAttention } from "./kernels/fused-attention.js";
export { graph, type Graph, type GraphInputs, type GraphOptions } from "./graph.js";
export { geluTanh } from "./kernels/gelu-tanh.js";
export {
  addsUpNarrowly,
  isLoopable,
  isReadAtOnce,
  readsSharedColumns,
  type Placed,
} from "./kernels/applicability.js";
export { rotaryEmbedding } from "./kernels/rotary-embedding.js";
export { sortedTopK } from "./kernels/sorted-top-k.js";
export { openTensorFile, TensorFile } from "./tensor-file.js";
export { selectiveLogSoftmax, selectiveLogSoftmaxWithEntropy } from "./kernels/selective-log-softmax.js";
export { softmaxEntropy } from "./kernels/softmax-entropy.js";
export { swiglu } from "./kernels/swiglu.js";
export {
  availableMemory,
  cudaAvailable,
  emptyCache,
  endOnSecondSignal,
  engineInformation,
  maxMemoryAllocated,
  memoryAllocated,
  requireDevice,
  resetPeakMemoryStats,
  setAllocationLimit,
  synchronize,
  type EngineInformation,
  trimCache,
} from "./engine.js";
export { claimThreads, setThreads, threads } from "./thread-policy.js";
export { clipGradNorm_, type ClipGradNormOptions } from "./clip-grad-norm.js";
export * from "./optim/index.js";
export * from "@astra-rl/base";
export * from "./safetensors/index.js";
export * from "./state-dict/index.js";
export {
  constantSchedule,
  cosineSchedule,
  createSchedule,
  linearSchedule,
  scheduleNames,
  type Schedule,
  type ScheduleName,
  type ScheduleOptions,
} from "./schedules.js";
