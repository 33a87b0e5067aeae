/**
 * Values that change nothing, sent where a request has no others: what is left out, servers fill from a checkpoint's
 * generation_config.json (vLLM, SGLang) or from defaults of their own (`top_k` of llama.cpp is 40). -1 for `top_k` is what all of
 * them take.
 */
export const NEUTRAL: Readonly<Record<string, number>> = {
  top_k: -1,
  min_p: 0,
  min_tokens: 0,
  repetition_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
};
