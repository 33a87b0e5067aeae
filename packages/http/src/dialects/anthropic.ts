import { z } from "zod";
import {
  AnswerError,
  checkModel,
  errorIn,
  onlyReasoning,
  parseBody,
  readStatus,
  shortened,
  withheld,
  type Answer,
  type Usage,
} from "../answer.js";
import { endingOf } from "../finish.js";
import type { Asked, Dialect, RequestSampling } from "./dialect.js";

/** The version of the API, which every request must specify. */
const VERSION = "2023-06-01";

const count = z.int().nonnegative();

/** A part of the content: a text, or another type, such as `{type: "thinking", …}` or `{type: "tool_use", …}`. */
const block = z.looseObject({ type: z.string(), text: z.string().optional() });

const message = z.looseObject({
  type: z.literal("message"),
  role: z.literal("assistant"),
  model: z.string(),
  content: z.array(block),
  stop_reason: z.string().nullish(),
  usage: z
    .looseObject({
      input_tokens: count,
      output_tokens: count,
      // Tokens of the input that were written into the cache or read from it are not among `input_tokens`.
      cache_creation_input_tokens: count.nullish(),
      cache_read_input_tokens: count.nullish(),
    })
    .nullish(),
});

type AnthropicMessage = z.infer<typeof message>;

/** The system prompt is a field of its own, and roles alternate, as `chatMessages` has them. */
function body(asked: Asked, sampling: RequestSampling, limit: string): Record<string, unknown> {
  if (!("messages" in asked)) throw new TypeError("a text to continue is nothing that this API takes");
  const { maxNewTokens, temperature, topP = 1, topK = 0, stopStrings = [] } = sampling;
  const system = asked.messages.flatMap(({ role, content }) => (role === "system" ? [content] : []));
  return {
    ...(system.length > 0 ? { system: system.join("\n\n") } : {}),
    messages: asked.messages.filter(({ role }) => role !== "system"),
    [limit]: maxNewTokens,
    temperature,
    // Some models refuse a request that sets both, and nothing else sets `top_p`.
    ...(topP === 1 ? {} : { top_p: topP }),
    ...(topK > 0 ? { top_k: topK } : {}),
    ...(stopStrings.length > 0 ? { stop_sequences: stopStrings } : {}),
  };
}

function read(given: unknown, model: string | null): Answer {
  const error = errorIn(given);
  if (error !== null) throw new AnswerError(`an error with status 200: ${error.message}`, "answer");
  const answered = parseBody(message, given, "message");
  const usage = usageOf(answered);
  checkModel(answered.model, model, usage);
  return { ...saidIn(answered, usage), usage, logprobs: null };
}

/** The content of a message that is an answer. */
function saidIn(
  { content, stop_reason: reason }: AnthropicMessage,
  usage: Usage | null,
): Pick<Answer, "text" | "note" | "ending"> {
  const ending = endingOf(reason);
  // `refusal`: a classifier of the provider truncated the answer, a part of which may be present.
  if (ending === "filtered") throw withheld(usage);
  const failed = (why: string) => new AnswerError(why, "answer", { usage });
  let text = "";
  let isReasoning = false;
  for (const { type, text: own } of content) {
    if (type === "text" && own !== undefined) text += own;
    else if (type === "thinking" || type === "redacted_thinking") isReasoning = true;
    else throw failed(`content of type ${shortened(type)} is not text that can be judged`);
  }
  if (ending === "failed") {
    const shown = shortened(JSON.stringify(reason ?? null));
    throw failed(`stop_reason ${shown}: the answer may be incomplete`);
  }
  if (isReasoning ? text.trim() === "" : text === "" && ending === "cut") throw onlyReasoning(usage);
  // No content with `end_turn` is an empty answer of these models.
  return { text, note: null, ending };
}

/** null for an impossible count: a prompt is never empty, and a generated text has tokens. */
function usageOf({ usage, content }: AnthropicMessage): Usage | null {
  if (usage === null || usage === undefined) return null;
  const { input_tokens: fresh, output_tokens: output } = usage;
  const input = fresh + (usage.cache_creation_input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0);
  const isSaid = content.some(({ text }) => (text ?? "") !== "");
  return input === 0 || (output === 0 && isSaid) ? null : { input, output };
}

function failure(status: number, given: unknown, wait: number | null): AnswerError {
  const error = readStatus(status, given, wait);
  // An account without credit is reported as a bad request.
  const isOutOfMoney = status === 400 && /credit balance is too low/iu.test(error.message);
  return isOutOfMoney ? new AnswerError(error.message, "status", { isFree: true, stops: true }) : error;
}

/** Anthropic's messages, https://docs.anthropic.com/en/api/messages. */
export const anthropic = {
  api: "messages",
  provider: {
    type: "anthropic",
    summary: "A model behind Anthropic's messages API",
    baseURL: "https://api.anthropic.com/v1",
    keyVariable: "ANTHROPIC_API_KEY",
  },
  isChat: true,
  path: "messages",
  use: " of Anthropic's API",
  limits: ["max_tokens"],
  scores: null,
  unsupported: ["minNewTokens", "repetitionPenalty"],
  maxTemperature: 1,
  headers: (key) => ({ "anthropic-version": VERSION, ...(key === null ? {} : { "x-api-key": key }) }),
  body,
  isNeutral: () => false,
  read,
  failure,
} as const satisfies Dialect;
