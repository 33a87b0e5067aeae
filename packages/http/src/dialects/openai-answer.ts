import { z } from "zod";
import {
  AnswerError,
  checkModel,
  errorIn,
  onlyReasoning,
  parseBody,
  scoredTokensSchema,
  shortened,
  topTokensSchema,
  withheld,
  type Answer,
  type ScoredTokens,
  type Usage,
} from "../answer.js";
import { endingOf, isBroken } from "../finish.js";

const count = z.number().int().nonnegative();
const text = z.string().nullish();

/** A part of a content: a text, or another type, such as `{type: "thinking", …}`. */
const part = z.looseObject({ type: text, text, refusal: text });

const choice = z.looseObject({
  finish_reason: text,
  /** OpenRouter: the finish reason as reported by the model's own provider. */
  native_finish_reason: text,
  error: z.unknown().optional(),
  message: z
    .looseObject({
      content: z.union([z.string(), z.array(part)]).nullish(),
      refusal: text,
      error: z.unknown().optional(),
      content_filter_results: z.unknown().optional(),
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

/** Some servers leave out the id, or give the arguments as an object. */
const toolCalls = z
  .array(
    z.looseObject({
      id: text,
      function: z.looseObject({
        name: z.string(),
        arguments: z.union([z.string(), z.looseObject({})]).nullish(),
      }),
    }),
  )
  .transform((calls) =>
    calls.map(({ id, function: { name, arguments: given } }, index) => ({
      id: id ?? `call_${index}`,
      name,
      arguments: typeof given === "string" ? given : JSON.stringify(given ?? {}),
    })),
  );

/** Finish reasons of an answer that calls tools. */
const CALLING: ReadonlySet<string> = new Set(["tool_calls", "function_call", "tool_use"]);

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

/** Reads the body of an answer of OpenAI's chat completions or completions: see `Dialect.read`. */
export const readCompletion = (body: unknown, model: string | null): Answer => read(body, model, false);

/** The same of a model with tools, which may ask for calls instead of answering. */
export const readToolCompletion = (body: unknown, model: string | null): Answer => read(body, model, true);

function read(body: unknown, model: string | null, hasTools: boolean): Answer {
  const error = errorIn(body);
  if (error !== null) throw new AnswerError(`an error with status 200: ${error.message}`, "answer");
  const { choices, usage: told, model: by } = parseBody(completion, body, "completion");
  const [first] = choices;
  const usage = usageOf(told, first);
  checkModel(by, model, usage);
  if (first === undefined) throw new AnswerError("no choices in the answer", "answer", { usage });
  const reasoned = (told?.completion_tokens_details?.reasoning_tokens ?? 0) > 0;
  const said = saidIn(first, usage, reasoned, hasTools);
  const { content: scored, tokens } = first.logprobs ?? {};
  const scoredTokens = scoredTokensOf(first.logprobs);
  const firstTokens = topTokensSchema.safeParse(
    (scored?.[0] as { top_logprobs?: unknown } | null)?.top_logprobs,
  );
  return {
    ...said,
    usage,
    logprobs: scored?.length ?? tokens?.length ?? null,
    ...(scoredTokens === null ? {} : { tokens: scoredTokens }),
    ...(firstTokens.success ? { firstTokens: firstTokens.data } : {}),
  };
}

/**
 * The text of a choice that is an answer. Only this function decides between answer, refusal, filtered and failure.
 *
 * @param reasoned whether tokens of reasoning were counted, which need not be shown
 * @param hasTools whether calls of tools are answers
 * @throws AnswerError for everything else
 */
function saidIn(
  choice: Choice,
  usage: Usage | null,
  reasoned: boolean,
  hasTools: boolean,
): Pick<Answer, "text" | "note" | "ending" | "asked"> {
  const { message, finish_reason: finish, native_finish_reason: native } = choice;
  const filters = [
    choice.content_filter_results,
    choice.content_filter_result,
    message?.content_filter_results,
  ];
  const ending = endingOf(finish);
  if (ending === "filtered" || endingOf(native) === "filtered" || filters.some(isFiltered)) {
    throw withheld(usage);
  }
  const failed = (why: string) => new AnswerError(why, "answer", { usage });
  const error = errorIn({ error: choice.error }) ?? errorIn({ error: message?.error });
  if (error !== null) throw failed(`an error in the answer: ${error.message}`);
  if (isBroken(native)) {
    throw failed(`native_finish_reason ${shortened(JSON.stringify(native))}: the answer may be incomplete`);
  }
  const { tool_calls: calls, function_call: call } = message ?? {};
  const { text: content, refusal, reasoning } = contentOf(choice);
  if ((calls ?? []).length > 0 || (call ?? null) !== null) {
    if (!hasTools) throw failed("the answer calls a tool, which is not text that can be judged");
    const asked = parseBody(toolCalls, calls, "tool calls", usage);
    if (ending !== "complete" && !CALLING.has(finish ?? "")) {
      throw failed(`finish_reason ${shortened(JSON.stringify(finish ?? null))}: the calls may be incomplete`);
    }
    return { text: content ?? "", note: null, ending: "complete", asked };
  }
  if (ending === "failed") {
    const why = `finish_reason ${shortened(JSON.stringify(finish ?? null))}`;
    throw failed(`${why}: the answer may be incomplete`);
  }
  const isBlank = (content ?? "").trim() === "";
  // White space is often all that is left where the reasoning was taken out.
  if (refusal === "" && (reasoning !== "" || reasoned ? isBlank : ending === "cut" && (content ?? "") === ""))
    throw onlyReasoning(usage);
  if (content === null && refusal === "") throw failed("no message in the answer");
  const isUnfiltered = filters.some(filterFailed);
  return isBlank && refusal !== ""
    ? { text: refusal, note: "refused", ending }
    : { text: content ?? "", note: isUnfiltered ? "unfiltered" : null, ending };
}

/**
 * A server's token counts; null if it reports none. A count of 0 for a prompt, which is never empty, or for a generated
 * text counts as missing: a budget that accepted it as the cost would never end.
 */
function usageOf(told: z.infer<typeof completion>["usage"], choice: Choice | undefined): Usage | null {
  const { prompt_tokens: input = 0, completion_tokens: output } = told ?? {};
  if (input === 0 || output === undefined) return null;
  const isSaid = [choice?.text, choice?.message?.content].some((said) => (said ?? "").length > 0);
  return output === 0 && isSaid ? null : { input, output };
}

/** The log-probabilities of a text completion; null if there are none, or not one for each token. */
function scoredTokensOf(given: z.infer<typeof choice>["logprobs"]): ScoredTokens | null {
  const { tokens, token_logprobs: logprobs, text_offset: offsets } = given ?? {};
  const read = scoredTokensSchema.safeParse({ tokens, logprobs, offsets: offsets ?? undefined });
  if (!read.success || read.data.logprobs.length !== read.data.tokens.length) return null;
  return read.data;
}

/** The content of a choice, by kind; `text` is null if there is no message, which differs from an empty one. */
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
        `content of type ${shortened(String(type))} is not text that can be judged`,
        "answer",
      );
    }
  }
  return made;
}

/** `{hate: {filtered: true, severity: "high"}, custom_blocklists: [{filtered: true, id: …}], …}` */
const isFiltered = (results: unknown): boolean =>
  typeof results === "object" &&
  results !== null &&
  ((results as { filtered?: unknown }).filtered === true || Object.values(results).some(isFiltered));

/** `{error: {code: "content_filter_error", …}}`: the filter did not run. */
const filterFailed = (results: unknown): boolean =>
  (results as { error?: { code?: unknown } } | null)?.error?.code === "content_filter_error";
