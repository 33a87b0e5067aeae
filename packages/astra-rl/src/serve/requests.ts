import { LEAST_TEMPERATURE, REPETITION_PENALTY_RANGE, type Sampling } from "@astra-rl/lm";
import { z } from "zod";
import { inputSchema, requirement, dotted } from "../options/index.js";
import { ApiError } from "./api-error.js";

/** Sequences that one request may ask for. */
const MOST_SEQUENCES = 256;
const MOST_LOGPROBS = 20;

const stop = z.string().min(1);

/** Of both endpoints. Keys that would change the answer and are not offered are refused unless they are neutral. */
const shared = {
  model: z.string(),
  n: z.int().min(1).max(MOST_SEQUENCES).optional(),
  stream: z.boolean().optional(),
  stream_options: z.strictObject({ include_usage: z.boolean().optional() }).optional(),
  temperature: z.number().min(0).max(100).optional(),
  top_p: z.number().gt(0).max(1).optional(),
  /** An extension, as are `repetition_penalty`, `min_tokens` and `return_token_ids`. */
  top_k: z.int().min(-1).optional(),
  repetition_penalty: z.number().min(REPETITION_PENALTY_RANGE[0]).max(REPETITION_PENALTY_RANGE[1]).optional(),
  min_tokens: z.int().min(0).optional(),
  return_token_ids: z.boolean().optional(),
  seed: z.int().optional(),
  stop: z.union([stop, z.array(stop).max(16)]).optional(),
  frequency_penalty: z.literal(0).optional(),
  presence_penalty: z.literal(0).optional(),
  logit_bias: z.strictObject({}).optional(),
  // Tell who asks; they change nothing.
  user: z.string().optional(),
  metadata: z.record(z.string(), z.string()).optional(),
  store: z.literal(false).optional(),
};

const part = z.strictObject({ type: z.literal("text"), text: z.string() });

const message = z.strictObject({
  role: z.enum(["system", "developer", "user", "assistant"]),
  content: z.union([z.string(), z.array(part)]).nullable(),
  name: z.string().nullish(),
  refusal: z.null().optional(),
  tool_calls: z.array(z.never()).nullish(),
});

const jsonSchema = z.strictObject({
  type: z.literal("json_schema"),
  json_schema: z.looseObject({ schema: z.record(z.string(), z.unknown()) }),
});

const responseFormat = z.union([
  z.strictObject({ type: z.literal("text") }),
  z.strictObject({ type: z.literal("json_object") }),
  jsonSchema,
]);

const chatSchema = z.strictObject({
  ...shared,
  messages: z.array(message).min(1),
  max_tokens: z.int().min(1).optional(),
  max_completion_tokens: z.int().min(1).optional(),
  logprobs: z.boolean().optional(),
  top_logprobs: z.int().min(0).max(MOST_LOGPROBS).optional(),
  response_format: responseFormat.optional(),
  tools: z.array(z.never()).optional(),
  tool_choice: z.literal("none").optional(),
});

const ids = z.array(z.int().min(0));

const completionSchema = z.strictObject({
  ...shared,
  prompt: z.union([z.string(), z.array(z.string()).min(1), ids.min(1), z.array(ids.min(1)).min(1)]),
  max_tokens: z.int().min(0).optional(),
  logprobs: z.int().min(0).max(MOST_LOGPROBS).optional(),
  echo: z.boolean().optional(),
  best_of: z.int().min(1).optional(),
});

export type ChatRequest = z.output<typeof chatSchema>;
export type CompletionRequest = z.output<typeof completionSchema>;
export type ResponseFormat = z.output<typeof responseFormat>;
export type ChatMessageIn = { role: z.output<typeof message>["role"]; content: string };

/** @throws ApiError 400 that names the key, the rule and what was given */
function parse<T extends z.ZodObject>(schema: T, given: unknown): z.output<T> {
  // null is what was left out.
  const isObject = typeof given === "object" && given !== null && !Array.isArray(given);
  const body = isObject
    ? Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null))
    : given;
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  if (issue.code === "unrecognized_keys") {
    const key = dotted([...issue.path, issue.keys[0]!]);
    throw new ApiError(
      400,
      `${key}: is not offered by this server; leave it out`,
      "unsupported_parameter",
      key,
    );
  }
  const param = dotted(issue.path);
  const rule = requirement(issue, inputSchema(schema), body);
  throw new ApiError(400, `${param || "the body"}: ${rule}`, "invalid_value", param || null);
}

export function parseChat(body: unknown): ChatRequest & { texts: ChatMessageIn[] } {
  const request = parse(chatSchema, body);
  if (request.top_logprobs !== undefined && request.logprobs !== true) {
    throw new ApiError(400, "top_logprobs: needs logprobs: true", "invalid_value", "top_logprobs");
  }
  const texts = request.messages.map(({ role, content }) => ({
    role,
    content: typeof content === "string" ? content : (content ?? []).map(({ text }) => text).join(""),
  }));
  return { ...request, texts };
}

export function parseCompletion(body: unknown): CompletionRequest & { prompts: (string | number[])[] } {
  const request = parse(completionSchema, body);
  const { prompt, n, best_of: best, echo, stream } = request;
  if (best !== undefined && best !== (n ?? 1)) {
    throw new ApiError(400, "best_of: must equal n: sequences are not ranked", "invalid_value", "best_of");
  }
  if (request.max_tokens === 0 && echo !== true) {
    throw new ApiError(400, "max_tokens: must be at least 1 without echo", "invalid_value", "max_tokens");
  }
  if (echo === true && stream === true) {
    throw new ApiError(400, "echo: is not offered with stream", "invalid_value", "echo");
  }
  const list = typeof prompt === "string" ? [prompt] : prompt;
  const prompts = (typeof list[0] === "number" ? [list] : list) as (string | number[])[];
  if (prompts.length * (n ?? 1) > MOST_SEQUENCES) {
    const count = `${prompts.length} prompts and n of ${n ?? 1}`;
    throw new ApiError(
      400,
      `prompt: a request is for at most ${MOST_SEQUENCES} sequences, got ${count}`,
      "invalid_value",
      "prompt",
    );
  }
  return { ...request, prompts };
}

/** How a request's tokens are sampled. */
export function samplingOf(request: ChatRequest | CompletionRequest, maxNewTokens: number): Sampling {
  const {
    temperature,
    top_p: topP,
    top_k: topK,
    repetition_penalty: penalty,
    min_tokens: least,
    stop,
  } = request;
  return {
    maxNewTokens,
    minNewTokens: Math.min(least ?? 0, maxNewTokens),
    greedy: temperature === 0,
    temperature: Math.max(LEAST_TEMPERATURE, temperature || 1),
    topP: topP ?? 1,
    topK: Math.max(0, topK ?? 0),
    repetitionPenalty: penalty ?? 1,
    stopStrings: stop === undefined ? [] : typeof stop === "string" ? [stop] : stop,
  };
}
