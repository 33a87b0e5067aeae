import { z } from "zod";
import { issueLine, worded } from "@astra-rl/base";
import {
  divergenceSchema,
  failureSchema,
  RESPONSE_NOTES,
  toolCallSchema,
  type FailureCause,
} from "@astra-rl/records";
import { ENDINGS } from "./finish.js";

const count = z.number().int().nonnegative();
const text = z.string().nullish();

const usageSchema = z.object({ input: count, output: count });

/** Tokens that a server counted. */
export type Usage = z.infer<typeof usageSchema>;

export const scoredTokensSchema = z.object({
  tokens: z.array(z.string()),
  /** null for the first token of a text. */
  logprobs: z.array(z.number().nullable()),
  /** Start of each token, in code points; absent if the server does not report it. */
  offsets: z.array(z.int()).optional(),
});

/** Tokens of a text with their log-probabilities. */
export type ScoredTokens = z.infer<typeof scoredTokensSchema>;

/** Rounding may leave a log-probability slightly above 0. */
export const topTokensSchema = z.array(z.object({ token: z.string(), logprob: z.number().max(0.01) })).min(1);

const askedCallSchema = z.object({ id: z.string(), name: z.string(), arguments: z.string() });

/** A call of a tool as a model asks for it; the arguments are JSON. */
export type AskedCall = z.infer<typeof askedCallSchema>;

const answerSchema = z.object({
  text: z.string(),
  note: z.enum(RESPONSE_NOTES).nullable(),
  ending: z.enum(ENDINGS),
  /** null if the server does not report it. */
  usage: usageSchema.nullable(),
  /** Number of tokens with log-probabilities; null if there are none. */
  logprobs: count.nullable(),
  /** The tokens of a text completion, if it has log-probabilities. */
  tokens: scoredTokensSchema.optional(),
  /** The most likely tokens in the place of the answer's first one, if they were asked for. */
  firstTokens: topTokensSchema.optional(),
  /** Calls that a model with tools asks for. */
  asked: z.array(askedCallSchema).min(1).optional(),
  /** Calls that an agent made before it answered. */
  calls: z.array(toolCallSchema).optional(),
  /** Where an agent's session differs from the conversation. */
  diverged: z.array(divergenceSchema).optional(),
});

/** A usable answer. */
export type Answer = z.infer<typeof answerSchema>;

/** An answer, or the reason for its absence. */
export const replySchema = z.union([
  z.object({ answer: answerSchema, failure: z.undefined().optional() }),
  z.object({ answer: z.undefined().optional(), failure: failureSchema, usage: usageSchema.nullable() }),
]);
export type Reply = z.infer<typeof replySchema>;

/** A response that is not a usable answer. */
export class AnswerError extends Error {
  override name = "AnswerError";

  constructor(
    message: string,
    /** The recorded cause of the failure. */
    readonly outcome: FailureCause,
    readonly options: {
      /** Whether the failure is final, so that a retry would not help. */
      isFinal?: boolean;
      usage?: Usage | null;
      /** Whether the server is overloaded, so that it should get fewer requests. */
      isOverloaded?: boolean;
      /** Wait in milliseconds that the server asks for; null for none. */
      wait?: number | null;
      /** Whether nothing was computed, so that the call is free. */
      isFree?: boolean;
      /** Whether the run must stop: no valid key, no credit. */
      stops?: boolean;
    } = {},
  ) {
    super(message);
  }
}

const knownError = z.union([
  z.string(),
  z.looseObject({
    message: text,
    code: z.union([z.string(), z.number()]).nullish(),
    type: text,
  }),
]);

const MOST_SHOWN = 300;

/** A short piece of a text for messages, on one line. */
export const shortened = (given: string): string => {
  const line = given.replaceAll(/\s+/gu, " ").trim();
  return line.length > MOST_SHOWN ? `${line.slice(0, MOST_SHOWN - 1)}…` : line;
};

/** A server's error. */
interface ServerError {
  message: string;
  code: string;
}

/** Reads the error in a body, whatever its form; null if there is none. */
export function errorIn(body: unknown): ServerError | null {
  const { error, detail } = (body ?? {}) as { error?: unknown; detail?: unknown };
  if ((error ?? false) !== false) {
    const { data } = knownError.safeParse(error);
    if (data === undefined) return { message: shortened(JSON.stringify(error)), code: "" };
    if (typeof data === "string") return { message: shortened(data), code: "" };
    const { message, code, type } = data;
    const named = [code, type].filter((each) => each !== null && each !== undefined).map(String);
    return {
      message: shortened(message ?? JSON.stringify(data)),
      code: named.join(" "),
    };
  }
  if (detail === undefined) return null;
  const message = shortened(typeof detail === "string" ? detail : JSON.stringify(detail));
  return { message, code: "" };
}

/** A filter withheld or truncated the answer: the model's complete answer is unknown. */
export const withheld = (usage: Usage | null): AnswerError =>
  new AnswerError("the server's content filter withheld the answer", "filtered", { isFinal: true, usage });

export const onlyReasoning = (usage: Usage | null): AnswerError =>
  new AnswerError("only reasoning and no answer; raise maxNewTokens", "reasoning", { isFinal: true, usage });

/** @throws AnswerError for a body that is not of the schema, with the first rule that it breaks */
export function parseBody<T>(
  schema: z.ZodType<T>,
  body: unknown,
  what: string,
  usage: Usage | null = null,
): T {
  const parsed = schema.safeParse(body, { error: worded });
  if (parsed.success) return parsed.data;
  const line = issueLine(parsed.error.issues[0]!, body, "the body");
  throw new AnswerError(`no ${what}: ${shortened(line)}`, "answer", { usage });
}

/**
 * Refuses an answer of a different model than the first answer's, such as a cheaper one that a proxy falls back to.
 *
 * @param model null before the first answer
 * @throws AnswerError
 */
export function checkModel(by: unknown, model: string | null, usage: Usage | null): void {
  if (model === null || typeof by !== "string" || by === model) return;
  throw new AnswerError(`answered by ${shortened(by)} instead of ${model}`, "answer", { usage });
}

const OVERLOADED = new Set([429, 503, 529]);
const RETRIED = new Set([408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]);

/**
 * Interprets an answer with a status other than 200.
 *
 * @param body as JSON, or as text if it is not JSON
 * @param wait milliseconds of its Retry-After; null without one
 */
export function readStatus(status: number, body: unknown, wait: number | null): AnswerError {
  const error = errorIn(body);
  const shown = error?.message ?? shortened(typeof body === "string" ? body : JSON.stringify(body));
  const message = `status ${status}${shown === "" ? "" : `: ${shown}`}`;
  const code = error?.code ?? "";
  if (code.includes("content_filter")) {
    return new AnswerError(`the server's content filter refused the conversation (${message})`, "filtered", {
      isFinal: true,
      isFree: true,
    });
  }
  if (status === 401 || status === 402 || code.includes("insufficient_quota")) {
    return new AnswerError(message, "status", { isFree: true, stops: true });
  }
  if (!RETRIED.has(status)) return new AnswerError(message, "status", { isFinal: true, isFree: true });
  return new AnswerError(message, "status", {
    isFree: true,
    wait,
    isOverloaded: OVERLOADED.has(status),
  });
}

/** Milliseconds that Retry-After requests; null if absent or invalid. */
export function retryAfter(headers: Headers, now: number): number | null {
  const exact = Number(headers.get("retry-after-ms") ?? NaN);
  if (exact >= 0) return exact;
  const given = headers.get("retry-after");
  if (given === null) return null;
  const seconds = Number(given);
  if (!Number.isNaN(seconds)) return seconds >= 0 ? 1000 * seconds : null;
  const until = Date.parse(given);
  return Number.isNaN(until) ? null : Math.max(0, until - now);
}
