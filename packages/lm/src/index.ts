// Language models: tokenizers, model families, checkpoints, log-probabilities, generation.
// Must not know: reward, rollouts, trees of turns, or why anybody wants a text to be likely.
export type { AttentionCache, CausalLM, ForwardOptions, ModelConfig } from "./causal-lm.js";
export * from "./hub/index.js";
export { keyedUniform, KeyedStream, type DrawKey, type KeyedStreamState } from "./keyed-random.js";
export { Tokenizer } from "./tokenizer.js";
