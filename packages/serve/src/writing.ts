import { randomBytes } from "node:crypto";
import type { Codec, Continuation, ScoredToken } from "@astra-rl/lm";
import { chatLogprobs, completionLogprobs, CompletionLogprobs } from "./logprobs.js";
import { codePoints, type ReadPrompt, type ReadRequest } from "./reading.js";

/** A finished sequence. */
export interface Result {
  prompt: ReadPrompt;
  text: string;
  read: readonly ScoredToken[];
  tokens: readonly ScoredToken[];
  continuation: Continuation;
}

/** The answer format of an endpoint. */
export interface Writing {
  object: string;
  chunk: string;
  id: string;
  /** In addition to the choices, in the whole answer and in the first chunk of a stream. */
  beside: object;
  /** A choice of the whole answer. */
  choice: (result: Result) => object;
  /** Writes the chunks of one choice. */
  stream: (prompt: ReadPrompt) => ChoiceStream;
}

export interface ChoiceStream {
  /** Before any text; null for nothing. */
  first: () => object | null;
  /** @param tokens the next ones, not sent before */
  delta: (text: string, tokens: readonly ScoredToken[]) => object;
}

export const reasonOf = ({ finished }: Continuation) =>
  finished === "length" || finished === null ? "length" : "stop";

/** The tokens without those that a stop string cut off. */
const told = (tokens: readonly ScoredToken[], { ids }: Continuation) => tokens.slice(0, ids.length);

const newId = (kind: string) => `${kind}-${randomBytes(12).toString("hex")}`;

export const writingOf = (request: ReadRequest, codec: Codec): Writing =>
  request.endpoint === "/v1/completions" ? completionWriting(request, codec) : chatWriting(request, codec);

function chatWriting({ logprobs, tellsIds, prompts }: ReadRequest, codec: Codec): Writing {
  const scores = (tokens: readonly ScoredToken[]) => (logprobs === null ? null : chatLogprobs(codec, tokens));
  return {
    object: "chat.completion",
    chunk: "chat.completion.chunk",
    id: newId("chatcmpl"),
    beside: tellsIds ? { prompt_token_ids: prompts[0]!.ids } : {},
    choice: ({ text, tokens, continuation }) => ({
      message: { role: "assistant", content: text, refusal: null },
      logprobs: scores(told(tokens, continuation)),
      finish_reason: reasonOf(continuation),
      ...(tellsIds ? { token_ids: continuation.ids } : {}),
    }),
    stream: () => ({
      first: () => ({ delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }),
      delta: (text, tokens) => ({
        delta: { content: text },
        logprobs: scores(tokens),
        finish_reason: null,
        ...(tellsIds ? { token_ids: tokens.map(({ id }) => id) } : {}),
      }),
    }),
  };
}

function completionWriting({ logprobs, tellsIds, echo }: ReadRequest, codec: Codec): Writing {
  return {
    object: "text_completion",
    chunk: "text_completion",
    id: newId("cmpl"),
    beside: {},
    choice: ({ text, read, tokens, continuation, prompt }) => ({
      text: prompt.text + text,
      logprobs: logprobs === null ? null : wholeLogprobs(codec, prompt, read, told(tokens, continuation)),
      finish_reason: reasonOf(continuation),
      ...(tellsIds ? { token_ids: continuation.ids, prompt_token_ids: prompt.ids } : {}),
    }),
    stream: (prompt) => {
      const scores = new CompletionLogprobs(codec, echo ? codePoints(prompt.text) : 0);
      let isFirst = true;
      return {
        first: () => null,
        delta: (text, tokens) => {
          const beginning = isFirst && tellsIds ? { prompt_token_ids: prompt.ids } : {};
          isFirst = false;
          return {
            text,
            logprobs: logprobs === null ? null : scores.next(tokens),
            finish_reason: null,
            ...(tellsIds ? { ...beginning, token_ids: tokens.map(({ id }) => id) } : {}),
          };
        },
      };
    },
  };
}

/** Those of the prompt, if it was scored, and of the generated text. */
function wholeLogprobs(
  codec: Codec,
  { text, offsets }: ReadPrompt,
  read: readonly ScoredToken[],
  tokens: readonly ScoredToken[],
): object {
  const own = completionLogprobs(codec, read, offsets.slice(0, read.length)) as Record<string, unknown[]>;
  const said = new CompletionLogprobs(codec, codePoints(text)).next(tokens) as Record<string, unknown[]>;
  return Object.fromEntries(Object.entries(own).map(([key, values]) => [key, [...values, ...said[key]!]]));
}
