import type { DrawKey } from "@astra-rl/base";
import type { CausalLM } from "../causal-lm.js";
import { GenerationSession, type Generation } from "./session.js";
import type { SessionOptions } from "./session-arguments.js";
import type { TokenDecoder } from "./stop.js";
import type { Sampling } from "./sampling.js";

/**
 * Generates one continuation per prompt: opens a session, generates once and frees it.
 *
 * @param prompts token ids. An empty prompt is replaced by the beginning-of-text (else end-of-text) token; a
 * prompt that leaves no room for `maxNewTokens` in the context window is truncated on the left.
 * @param keys random key of each row; not needed for greedy decoding
 */
export function generate(
  model: CausalLM,
  tokenizer: TokenDecoder,
  prompts: readonly (readonly number[])[],
  sampling: Sampling,
  keys: readonly DrawKey[] = [],
  options: SessionOptions = {},
): Generation {
  const session = GenerationSession.open(model, tokenizer, prompts, options);
  try {
    return session.generate(sampling, keys);
  } finally {
    session.dispose();
  }
}
