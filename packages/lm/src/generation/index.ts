/**
 * Sampling and generation sessions with key/value caches, which prefill no token twice. Knows token ids,
 * caches and draws; must not know model families, tokenization, or roles.
 */
export { generate } from "./generate.js";
export { keyedUniform, type DrawKey } from "@astra-rl/base";
export {
  LEAST_TEMPERATURE,
  REPETITION_PENALTY_RANGE,
  resolveSampling,
  type ResolvedSampling,
  type Sampling,
} from "./sampling.js";
export { GenerationSession, type Generation } from "./session.js";
export type { ReadOptions, ScoredSpan, SessionOptions } from "./session-arguments.js";
export { ContinuousBatch, type ContinuousBatchOptions } from "./continuous-batch.js";
export type { Continuation, ContinuationRequest } from "./continuous-row.js";
export type { ScoredToken } from "./scored-tokens.js";
export { TextPieces } from "./text-pieces.js";
export { TextStream, type TextStreamOptions } from "./text-stream.js";
export { DecodeGraphs } from "./static/decode-graphs.js";
export { CacheBudget } from "./session-budget.js";
export { WorkCounters, type WorkCounts } from "./session-counters.js";
export type { FinishReason, TokenDecoder } from "./stop.js";
