import { z } from "zod";
import { failureSchema, RESPONSE_NOTES, type FailureCause } from "../core/index.js";
import { endingOf, ENDINGS } from "./finish.js";

const count = z.number().int().nonnegative();

const usageSchema = z.object({ input: count, output: count });

/** Tokens that a server counted. */
export type Usage = z.infer<typeof usageSchema>;

const scoredTokensSchema = z.object({
  tokens: z.array(z.string()),
  /** null for the first token of a text. */
  logprobs: z.array(z.number().nullable()),
  /** Where each token begins, in code points; absent where the server does not tell. */
  offsets: z.array(z.int()).optional(),
});

/** Tokens of a text with their log-probabilities. */
export type ScoredTokens = z.infer<typeof scoredTokensSchema>;

const answerSchema = z.object({
  text: z.string(),
  note: z.enum(RESPONSE_NOTES).nullable(),
  ending: z.enum(ENDINGS),
  /** null where the server does not tell. */
  usage: usageSchema.nullable(),
  /** Number of tokens with log-probabilities; null where there are none. */
  logprobs: count.nullable(),
  /** The tokens of a text completion, where it comes with their log-probabilities. */
  tokens: scoredTokensSchema.optional(),
});

/** A usable answer. */
export type Answer = z.infer<typeof answerSchema>;

/** An answer, or why there is none. */
export const replySchema = z.union([
  z.object({ answer: answerSchema, failure: z.undefined().optional() }),
  z.object({ answer: z.undefined().optional(), failure: failureSchema, usage: usageSchema.nullable() }),
]);
export type Reply = z.infer<typeof replySchema>;

/** A response that is no usable answer. */
export class AnswerError extends Error {
  override name = "AnswerError";

  constructor(
    message: string,
    /** What the failure is recorded as. */
    readonly outcome: FailureCause,
    readonly options: {
      /** Whether the server decided so, and asking again would change nothing. */
      isFinal?: boolean;
      usage?: Usage | null;
      /** Whether the server is overloaded, so that it should get fewer requests. */
      isOverloaded?: boolean;
      /** Wait in milliseconds that the server asks for; null for none. */
      wait?: number | null;
      /** Whether nothing was computed, so that nothing is paid for. */
      isFree?: boolean;
      /** Whether the run cannot go on: no valid key, no money. */
      stops?: boolean;
    } = {},
  ) {
    super(message);
  }
}

const text = z.string().nullish();

/** A part of a content: a text, or what is none, such as `{type: "thinking", …}`. */
const part = z.looseObject({ type: text, text, refusal: text });

const choice = z.looseObject({
  finish_reason: text,
  /** OpenRouter: the reason in the words of the model's own provider. */
  native_finish_reason: text,
  error: z.unknown().optional(),
  message: z
    .looseObject({
      content: z.union([z.string(), z.array(part)]).nullish(),
      refusal: text,
      /** Newer and older name of a reasoning model's reasoning. */
      reasoning: text,
      reasoning_content: text,
      tool_calls: z.array(z.unknown()).nullish(),
      function_call: z.unknown().optional(),
    })
    .nullish(),
  text,
  /** Azure OpenAI: what its content filter found in the answer, or that it failed. */
  content_filter_results: z.unknown().optional(),
  content_filter_result: z.unknown().optional(),
  logprobs: z
    .looseObject({
      content: z.array(z.unknown()).nullish(),
      tokens: z.array(z.unknown()).nullish(),
      token_logprobs: z.array(z.unknown()).nullish(),
      text_offset: z.array(z.unknown()).nullish(),
    })
    .nullish(),
});

type Choice = z.infer<typeof choice>;

const completion = z.looseObject({
  model: text,
  choices: z.array(choice),
  usage: z
    .looseObject({
      prompt_tokens: count,
      completion_tokens: count.optional(),
      completion_tokens_details: z.looseObject({ reasoning_tokens: count.nullish() }).nullish(),
    })
    .nullish(),
});

const errorBody = z.looseObject({
  error: z.union([
    z.string(),
    z.looseObject({
      message: text,
      code: z.union([z.string(), z.number()]).nullish(),
      type: text,
    }),
  ]),
});

const MOST_SHOWN = 300;

/** A short piece of a text for messages, on one line. */
const shortened = (given: string): string => {
  const line = given.replaceAll(/\s+/gu, " ").trim();
  return line.length > MOST_SHOWN ? `${line.slice(0, MOST_SHOWN - 1)}…` : line;
};

/** What a server says about an error. */
interface ServerError {
  message: string;
  code: string;
}

/** Reads the error in a body; null where there is none in any known form. */
function errorIn(body: unknown): ServerError | null {
  const read = errorBody.safeParse(body);
  if (read.success) {
    const { error } = read.data;
    if (typeof error === "string") return { message: shortened(error), code: "" };
    const { message, code, type } = error;
    const named = [code, type].filter((each) => each !== null && each !== undefined).map(String);
    return {
      message: shortened(message ?? JSON.stringify(error)),
      code: named.join(" "),
    };
  }
  const { detail } = (body ?? {}) as { detail?: unknown };
  if (detail === undefined) return null;
  const message = shortened(typeof detail === "string" ? detail : JSON.stringify(detail));
  return { message, code: "" };
}

/**
 * Reads the body of an answer with status 200.
 *
 * @param model the name that the server gives its model; null if it is not known yet
 * @throws AnswerError for anything that is no answer
 */
export function readAnswer(body: unknown, model: string | null): Answer {
  const error = errorIn(body);
  if (error !== null) throw new AnswerError(`an error with status 200: ${error.message}`, "answer");
  const read = completion.safeParse(body);
  if (!read.success) {
    const { path, message } = read.error.issues[0]!;
    throw new AnswerError(`no completion: ${path.join(".") || "the body"}: ${shortened(message)}`, "answer");
  }
  const { choices, usage: told, model: by } = read.data;
  const [first] = choices;
  const usage = usageOf(told, first);
  if (model !== null && typeof by === "string" && by !== model) {
    throw new AnswerError(`answered by ${shortened(by)} instead of ${model}`, "answer", { usage });
  }
  if (first === undefined) throw new AnswerError("no choices in the answer", "answer", { usage });
  const said = saidIn(first, usage, (told?.completion_tokens_details?.reasoning_tokens ?? 0) > 0);
  const { content: scored, tokens } = first.logprobs ?? {};
  const scoredTokens = scoredTokensOf(first.logprobs);
  return {
    ...said,
    usage,
    logprobs: scored?.length ?? tokens?.length ?? null,
    ...(scoredTokens === null ? {} : { tokens: scoredTokens }),
  };
}

/**
 * The text that a choice says, where it is an answer. This alone decides what is an answer, a refusal, filtered or a failure.
 *
 * @param reasoned whether tokens of reasoning were counted, which need not be shown
 * @throws AnswerError for everything else
 */
function saidIn(
  choice: Choice,
  usage: Usage | null,
  reasoned: boolean,
): Pick<Answer, "text" | "note" | "ending"> {
  const { message, finish_reason: finish, native_finish_reason: native, error } = choice;
  const filters = [choice.content_filter_results, choice.content_filter_result];
  const ending = endingOf(finish);
  if (ending === "filtered" || endingOf(native) === "filtered" || filters.some(isFiltered)) {
    throw new AnswerError("the server's content filter withheld the answer", "filtered", {
      isFinal: true,
      usage,
    });
  }
  const failed = (why: string) => new AnswerError(why, "answer", { usage });
  if ((error ?? null) !== null) {
    const { message: why } = errorIn({ error }) ?? { message: shortened(JSON.stringify(error)) };
    throw failed(`an error in the answer: ${why}`);
  }
  const { tool_calls: calls, function_call: call } = message ?? {};
  if ((calls ?? []).length > 0 || (call ?? null) !== null) {
    throw failed("the answer calls a tool, which is no text that can be judged");
  }
  const { text: content, refusal, reasoning } = contentOf(choice);
  if (ending === "failed") {
    const why = `finish_reason ${shortened(JSON.stringify(finish ?? null))}`;
    throw failed(`${why}: the answer is not known to be complete`);
  }
  const isReasoning = reasoning !== "" || reasoned || ending === "cut";
  if ((content ?? "") === "" && refusal === "" && isReasoning) {
    throw new AnswerError("only reasoning and no answer; raise maxNewTokens", "reasoning", {
      isFinal: true,
      usage,
    });
  }
  if (content === null && refusal === "") throw failed("no message in the answer");
  const isUnfiltered = filters.some(filterFailed);
  return (content ?? "") === "" && refusal !== ""
    ? { text: refusal, note: "refused", ending }
    : { text: content ?? "", note: isUnfiltered ? "unfiltered" : null, ending };
}

/**
 * What a server counted; null where it counts nothing. A count of 0 for a prompt that is never empty, or for a text that was
 * said, is none: a budget that took it for the cost would never end.
 */
function usageOf(told: z.infer<typeof completion>["usage"], choice: Choice | undefined): Usage | null {
  const { prompt_tokens: input = 0, completion_tokens: output } = told ?? {};
  if (input === 0 || output === undefined) return null;
  const isSaid = [choice?.text, choice?.message?.content].some((said) => (said ?? "").length > 0);
  return output === 0 && isSaid ? null : { input, output };
}

/** The log-probabilities of a text completion; null where there are none, or not one for each token. */
function scoredTokensOf(given: z.infer<typeof choice>["logprobs"]): ScoredTokens | null {
  const { tokens, token_logprobs: logprobs, text_offset: offsets } = given ?? {};
  const read = scoredTokensSchema.safeParse({ tokens, logprobs, offsets: offsets ?? undefined });
  if (!read.success || read.data.logprobs.length !== read.data.tokens.length) return null;
  return read.data;
}

/** What a choice says, by kind; `text` is null where nothing was said, which differs from saying nothing. */
function contentOf({ message, text }: Choice): { text: string | null; refusal: string; reasoning: string } {
  const { content = null, refusal, reasoning, reasoning_content: older } = message ?? {};
  const made = { text: text ?? null, refusal: refusal ?? "", reasoning: reasoning ?? older ?? "" };
  if (typeof content === "string") return { ...made, text: content };
  for (const { type, text: own, refusal: declined } of content ?? []) {
    if (type === "refusal") made.refusal += declined ?? "";
    else if (type === "thinking" || type === "reasoning") made.reasoning += own ?? "…";
    else if (typeof own === "string") made.text = (made.text ?? "") + own;
    else {
      throw new AnswerError(
        `content of type ${shortened(String(type))} is no text that can be judged`,
        "answer",
      );
    }
  }
  return made;
}

/** `{hate: {filtered: true, severity: "high"}, …}` */
const isFiltered = (results: unknown): boolean =>
  Object.values(results ?? {}).some((each) => (each as { filtered?: unknown } | null)?.filtered === true);

/** `{error: {code: "content_filter_error", …}}`: the filter did not run. */
const filterFailed = (results: unknown): boolean =>
  (results as { error?: { code?: unknown } } | null)?.error?.code === "content_filter_error";

const OVERLOADED = new Set([429, 503]);
const RETRIED = new Set([408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]);

/**
 * What an answer with another status than 200 means.
 *
 * @param body as JSON, or the text where it is none
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

/** Milliseconds that Retry-After asks for; null for none and for one that makes no sense. */
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
