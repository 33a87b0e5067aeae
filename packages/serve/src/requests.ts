import { LEAST_TEMPERATURE, REPETITION_PENALTY_RANGE, type Sampling } from "@astra-rl/lm";
import { z } from "zod";
import { dotted, worded } from "@astra-rl/base";
import { ApiError, invalidValue } from "./api-error.js";

/** Maximum number of sequences per request. */
export const MOST_SEQUENCES = 256;
const MOST_LOGPROBS = 20;
/** Maximum number of messages of a conversation: a chat template renders each sequence of roles again. */
const MOST_MESSAGES = 1024;
const LARGEST_SEED = 2 ** 63;

const stop = z
  .string()
  .min(1)
  .refine((text) => !/\p{Surrogate}/u.test(text), "must be valid text, without lone surrogates");

/** Lists of unsupported features may be present if empty. */
const none = (what: string) =>
  z.array(z.unknown()).max(0, `must be empty: ${what} are not supported by this server`);

/** Keys of both endpoints. Unsupported keys that would change the answer are refused unless they are neutral. */
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
  seed: z
    .number()
    .refine(
      (seed) => Number.isInteger(seed) && Math.abs(seed) <= LARGEST_SEED,
      "must be a whole number of at most 64 bits",
    )
    .optional(),
  stop: z.union([stop, z.array(stop).max(16)]).optional(),
  frequency_penalty: z.literal(0).optional(),
  presence_penalty: z.literal(0).optional(),
  logit_bias: z.strictObject({}).optional(),
  // Identify the client; they have no effect.
  user: z.string().optional(),
  metadata: z.record(z.string(), z.string()).optional(),
  store: z.literal(false).optional(),
};

const part = z.union([
  z.strictObject({ type: z.literal("text"), text: z.string() }),
  z.strictObject({ type: z.literal("refusal"), refusal: z.string() }),
]);

const message = z.strictObject({
  role: z.enum(["system", "developer", "user", "assistant"]),
  content: z.union([z.string(), z.array(part)]).nullish(),
  name: z.string().optional(),
  refusal: z.string().optional(),
  tool_calls: none("tools").optional(),
  // Fields of answers that are sent back as history; they are ignored.
  type: z.enum(["text", "message"]).optional(),
  id: z.string().optional(),
  annotations: z.array(z.unknown()).optional(),
  reasoning: z.string().optional(),
  reasoning_content: z.string().optional(),
  reasoning_details: z.array(z.unknown()).optional(),
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
  messages: z.array(message).min(1).max(MOST_MESSAGES, `must be at most ${MOST_MESSAGES} messages`),
  max_tokens: z.int().min(1).optional(),
  max_completion_tokens: z.int().min(1).optional(),
  logprobs: z.boolean().optional(),
  top_logprobs: z.int().min(0).max(MOST_LOGPROBS).optional(),
  response_format: responseFormat.optional(),
  /** An extension: what a tester is to achieve. */
  goal: z
    .string()
    .refine((text) => text.trim() !== "", "must not be empty")
    .optional(),
  tools: none("tools").optional(),
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

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Treats null as absent. */
const withoutNulls = (given: Record<string, unknown>, but: readonly string[] = []) =>
  Object.fromEntries(Object.entries(given).filter(([key, value]) => value !== null || but.includes(key)));

/** @throws ApiError 400 that names the key, the rule and what was given */
function parse<T extends z.ZodObject>(schema: T, given: unknown): z.output<T> {
  const body = isRecord(given) ? withoutNulls(given) : given;
  const result = schema.safeParse(body, { error: worded });
  if (!result.success) {
    const issue = result.error.issues[0]!;
    if (issue.code === "unrecognized_keys") {
      const key = dotted([...issue.path, issue.keys[0]!]);
      throw new ApiError(
        400,
        `${key}: is not supported by this server; leave it out`,
        "unsupported_parameter",
        key,
      );
    }
    const param = dotted(issue.path);
    throw new ApiError(400, `${param || "the body"}: ${issue.message}`, "invalid_value", param || null);
  }
  const { stream, stream_options: options } = result.data as { stream?: boolean; stream_options?: object };
  if (options !== undefined && stream !== true) throw invalidValue("stream_options", "needs stream: true");
  return result.data;
}

export function parseChat(body: unknown): ChatRequest & { texts: ChatMessageIn[] } {
  const { messages } = isRecord(body) ? body : {};
  const given = Array.isArray(messages)
    ? {
        ...(body as object),
        messages: messages.map((each: unknown) => (isRecord(each) ? withoutNulls(each, ["content"]) : each)),
      }
    : body;
  const request = parse(chatSchema, given);
  if (request.top_logprobs !== undefined && request.logprobs !== true) {
    throw invalidValue("top_logprobs", "needs logprobs: true");
  }
  return { ...request, texts: request.messages.map(textOf) };
}

function textOf({ role, content, refusal }: ChatRequest["messages"][number], at: number): ChatMessageIn {
  if (Array.isArray(content)) {
    return { role, content: content.map((each) => ("text" in each ? each.text : each.refusal)).join("") };
  }
  // An answer that is sent back may be empty.
  if (role === "assistant") return { role, content: content ?? refusal ?? "" };
  if (typeof content === "string") return { role, content };
  throw invalidValue(`messages[${at}].content`, "must be a string or parts of text");
}

export function parseCompletion(body: unknown): CompletionRequest & { prompts: (string | number[])[] } {
  const request = parse(completionSchema, body);
  const { prompt, n, best_of: best, echo, stream } = request;
  if (best !== undefined && best !== (n ?? 1)) {
    throw invalidValue("best_of", "must equal n: sequences are not ranked");
  }
  if (request.max_tokens === 0 && echo !== true) {
    throw invalidValue("max_tokens", "must be at least 1 without echo");
  }
  if (echo === true && stream === true) {
    throw invalidValue("echo", "is not supported with stream");
  }
  const list = typeof prompt === "string" ? [prompt] : prompt;
  const prompts = (typeof list[0] === "number" ? [list] : list) as (string | number[])[];
  if (prompts.length * (n ?? 1) > MOST_SEQUENCES) {
    const count = `${prompts.length} prompts and n of ${n ?? 1}`;
    throw invalidValue("prompt", `a request is for at most ${MOST_SEQUENCES} sequences, got ${count}`);
  }
  return { ...request, prompts };
}

/** Default sampling settings, such as those of a run's configuration. */
export type SamplingDefaults = Omit<Partial<Sampling>, "maxNewTokens"> & { maxNewTokens?: number };

/** The sampling settings of a request. */
export function samplingOf(
  request: ChatRequest | CompletionRequest,
  defaults: SamplingDefaults,
  maxNewTokens: number,
): Sampling {
  const {
    temperature = defaults.greedy === true ? 0 : (defaults.temperature ?? 1),
    top_p: topP = defaults.topP ?? 1,
    top_k: topK = defaults.topK ?? 0,
    repetition_penalty: repetitionPenalty = defaults.repetitionPenalty ?? 1,
    min_tokens: least = defaults.minNewTokens ?? 0,
    stop,
  } = request;
  const { stopStrings = [], keepStopString = false } = defaults;
  return {
    maxNewTokens,
    minNewTokens: Math.min(least, maxNewTokens),
    greedy: temperature === 0,
    temperature: Math.max(LEAST_TEMPERATURE, temperature || 1),
    topP,
    topK: Math.max(0, topK),
    repetitionPenalty,
    ...(stop === undefined
      ? { stopStrings, keepStopString }
      : { stopStrings: typeof stop === "string" ? [stop] : stop }),
  };
}

/** A seed for draws: a safe integer. */
export const safeSeed = (seed: number): number =>
  Number.isSafeInteger(seed) ? seed : seed % (Number.MAX_SAFE_INTEGER - 110);
