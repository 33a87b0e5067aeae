/**
 * Language models: tokenizers, model families, checkpoints, log-probabilities, generation. It must not know rewards,
 * rollouts, conversation trees, or training objectives.
 *
 * @module @astra-rl/lm
 */
export type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "./causal-lm.js";
export * from "./hub/index.js";
export { Tokenizer, TOKENIZER_FILES } from "./tokenizer.js";
export { ChatTemplate, type ChatMessage, type TemplateMessage } from "./chat-template.js";
export {
  loadCausalLM,
  loadSequenceClassifier,
  loadTextEncoder,
  saveCausalLM,
  type LoadedCausalLM,
  type LoadedClassifier,
  type LoadedEncoder,
  type LoadOptions,
} from "./checkpoint.js";
export { classLogits, classifierRow, type ClassLogitsOptions } from "./class-logits.js";
export { adapterBase, adapterBaseName } from "./adapters/adapter-base.js";
export { isModelId, resolveCheckpoint, resolveTokenizer, type HubOptions } from "./resolve-checkpoint.js";
export type {
  SequenceClassifier,
  SequenceClassifierConfig,
  TextEncoder,
  TextEncoderConfig,
} from "./text-encoder.js";
export {
  initializeCausalLM,
  initializeGPT2,
  type GPT2Sizes,
  type InitializeOptions,
} from "./families/initialize.js";
export * from "./format/index.js";
export * from "./generation/index.js";
export {
  contextThatFits,
  tokenLogprobs,
  tokenOutputs,
  type ReadCounters,
  type ReadHead,
  type ScoredRow,
  type TokenLogprobsOptions,
  type TokenOutputs,
  type TokenOutputsOptions,
} from "./logprobs.js";
export { LoRA } from "./adapters/lora.js";
export type { LoRAConfiguration } from "./adapters/lora-configuration.js";
export { storedWeightBytes } from "./weight-files.js";
export { ValueHead } from "./value-head.js";
export {
  Conversation,
  conversationOf,
  Message,
  messageOf,
  type From,
  type Sampled,
} from "./conversation/conversation.js";
export type { ToolCall } from "./conversation/tool-call.js";
export { GOAL_PLACEHOLDER, goalOf, goalText, type Goal } from "./conversation/goal.js";
export {
  LocalModel,
  type LocalModelOptions,
  type Reading,
  type SampleKey,
  type ScoreOptions,
} from "./conversation/local-model.js";
