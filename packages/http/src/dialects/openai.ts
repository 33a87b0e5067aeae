import { readStatus } from "../answer.js";
import type { Asked, Dialect, RequestSampling } from "./dialect.js";
import { readCompletion } from "./openai-answer.js";

/**
 * Neutral values, sent by default: servers fill omitted ones from a checkpoint's
 * generation_config.json (vLLM, SGLang) or from their own defaults (`top_k` of llama.cpp is 40). -1 for `top_k` is
 * accepted by all of them.
 */
const NEUTRAL: Readonly<Record<string, number>> = {
  top_k: -1,
  min_p: 0,
  min_tokens: 0,
  repetition_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
};

/** Every sampling value is sent: a server's own defaults may come from the model's files. */
function body(asked: Asked, sampling: RequestSampling, limit: string): Record<string, unknown> {
  const { maxNewTokens, temperature, seed, topP, topK = 0, minNewTokens = 0 } = sampling;
  const { repetitionPenalty = 1, stopStrings = [], schema, topLogprobs } = sampling;
  return {
    ...asked,
    [limit]: maxNewTokens,
    ...NEUTRAL,
    temperature,
    ...(topP === undefined ? {} : { top_p: topP }),
    seed,
    ...(stopStrings.length > 0 ? { stop: stopStrings } : {}),
    // Extensions of the API, with neutral values by default.
    ...(topK > 0 ? { top_k: topK } : {}),
    ...(minNewTokens > 0 ? { min_tokens: minNewTokens } : {}),
    ...(repetitionPenalty === 1 ? {} : { repetition_penalty: repetitionPenalty }),
    ...(topLogprobs === undefined ? {} : { logprobs: true, top_logprobs: topLogprobs }),
    ...(schema === undefined
      ? {}
      : {
          response_format: {
            type: "json_schema",
            json_schema: { name: "verdict", strict: true, schema },
          },
        }),
  };
}

const shared = {
  provider: {
    type: "openai",
    summary: "A model behind an OpenAI-compatible API: OpenAI, vLLM, SGLang, llama.cpp, Ollama, LiteLLM",
    baseURL: "https://api.openai.com/v1",
    keyVariable: "OPENAI_API_KEY",
  },
  limits: ["max_tokens", "max_completion_tokens"],
  unsupported: [],
  maxTemperature: Infinity,
  headers: (key: string | null): Record<string, string> =>
    key === null ? {} : { authorization: `Bearer ${key}` },
  body,
  isNeutral: (name: string, value: unknown) => NEUTRAL[name] !== undefined && NEUTRAL[name] === value,
  read: readCompletion,
  failure: readStatus,
} as const;

/** OpenAI's chat completions. */
export const openaiChat = {
  ...shared,
  api: "chat",
  isChat: true,
  path: "chat/completions",
  use: "",
  scores: { logprobs: true },
} as const satisfies Dialect;

/** OpenAI's completions, which continue a text; for base models. */
export const openaiCompletions = {
  ...shared,
  api: "completions",
  isChat: false,
  path: "completions",
  use: ", which continues a text; for base models",
  scores: { logprobs: 1 },
} as const satisfies Dialect;
