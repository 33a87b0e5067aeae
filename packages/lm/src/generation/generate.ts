import type { CausalLM } from "../causal-lm.js";
import { GenerationSession, type Generation, type SessionOptions } from "./session.js";
import type { TokenDecoder } from "./stop.js";
import type { DrawKey } from "./keyed-random.js";
import type { Sampling } from "./sampling.js";

/**
 * One utterance for each prompt: a session that is opened, asked once and freed.
 *
 * @param prompts token ids; an empty one stands as the beginning-of-text (else end-of-text) token, and one that leaves
 * no room for `maxNewTokens` in the model's window loses tokens on its left
 * @param keys name the draws of each row; not needed when greedy
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
