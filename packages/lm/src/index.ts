// Language models: tokenizers, model families, checkpoints, log-probabilities, generation.
// Must not know: reward, rollouts, trees of turns, or why anybody wants a text to be likely.
export type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "./causal-lm.js";
export * from "./hub/index.js";
export { keyedUniform, KeyedStream, type DrawKey, type KeyedStreamState } from "./keyed-random.js";
export { Tokenizer } from "./tokenizer.js";
export { ChatTemplate, type ChatMessage } from "./chat-template.js";
export {
  loadCausalLM,
  loadSequenceClassifier,
  saveCausalLM,
  type LoadedCausalLM,
  type LoadedClassifier,
  type LoadOptions,
} from "./checkpoint.js";
export { isModelId, resolveCheckpoint, type HubOptions } from "./resolve-checkpoint.js";
export type { SequenceClassifier, SequenceClassifierConfig } from "./sequence-classifier.js";
export {
  initializeCausalLM,
  initializeGPT2,
  type GPT2Sizes,
  type InitializeOptions,
} from "./families/initialize.js";
export { generate } from "./generation.js";
export {
  GenerationSession,
  type Generation,
  type ReadOptions,
  type ScoredSpan,
  type SessionOptions,
} from "./generation-session.js";
export type { TokenDecoder } from "./generation-stop.js";
export { bytesPerColumn, KeyValueCache, type KeyValueCacheOptions } from "./key-value-cache.js";
export { resolveSampling, type ResolvedSampling, type Sampling } from "./sampling.js";
export { CacheBudget, type CacheHolder } from "./session-budget.js";
export { WorkCounters, type WorkCounts } from "./session-counters.js";
export type { FinishReason } from "./session-decode.js";
export {
  contextThatFits,
  tokenLogprobs,
  type ReadCounters,
  type ScoredRow,
  type TokenLogprobsOptions,
} from "./logprobs.js";
export { LoRA, type LoRAConfiguration } from "./lora.js";
export { Codec } from "./format/codec.js";
export type { ConversationFormat, Line, Piece, Span, Voice } from "./format/conversation-format.js";
export { PlainFormat } from "./format/plain.js";
export {
  LocalConversation,
  type Heard,
  type SpeakKey,
  type Spoken,
} from "./conversation/local-conversation.js";
export { LocalSpeaker, type LocalSpeakerOptions } from "./conversation/local-speaker.js";
