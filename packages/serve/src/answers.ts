import { randomInt } from "node:crypto";
import { Codec, TextStream, type ContinuousBatch, type ScoredToken, type Tokenizer } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import { ApiError } from "./api-error.js";
import type { Engine } from "./engine.js";
import { jsonAnswer } from "./json-answer.js";
import type { ReadingOptions, ReadPrompt, ReadRequest } from "./reading.js";
import { reasonOf, writingOf, type Result, type Writing } from "./writing.js";

/** A model under its name in the API. */
export interface ServedModel extends ReadingOptions {
  name: string;
  batch: ContinuousBatch;
  tokenizer: Tokenizer;
}

/** The destination of an answer. */
export interface Receiver {
  /** Sends the whole answer. */
  send: (body: object) => void;
  /** Sends one event of a stream. */
  event: (body: object | "[DONE]") => void;
  /** The first token of any sequence was generated. */
  onFirstToken: () => void;
}

interface Call {
  request: ReadRequest;
  model: ServedModel;
  engine: Engine;
  receiver: Receiver;
  writing: Writing;
  seed: number;
  /** Sends a chunk of a choice. */
  chunk: (index: number, choice: object) => void;
}

/**
 * Answers a request.
 *
 * @param signal aborted when the client has disconnected: its sequences are given up
 * @throws ApiError for requests that cannot be answered, before anything is sent, unless the answer is a stream
 */
export async function answer(
  request: ReadRequest,
  model: ServedModel,
  engine: Engine,
  receiver: Receiver,
  signal: AbortSignal,
): Promise<void> {
  const gone = new ApiError(499, "the client has disconnected");
  if (signal.aborted) throw gone;
  const prompts = request.prompts.flatMap((prompt) =>
    Array.from({ length: request.n }, (): ReadPrompt => prompt),
  );
  engine.admit(prompts.length);
  const writing = writingOf(request, Codec.of(model.tokenizer));
  const base = { id: writing.id, created: Math.floor(Date.now() / 1000), model: model.name };
  const abandon: (() => void)[] = [];
  const onAbort = () => abandon.forEach((give) => give());
  signal.addEventListener("abort", onAbort, { once: true });
  let beside = writing.beside;
  const chunk = (index: number, choice: object) => {
    receiver.event({ ...base, object: writing.chunk, choices: [{ index, ...choice }], ...beside });
    beside = {};
  };
  const seed = request.seed ?? randomInt(2 ** 47);
  const call: Call = { request, model, engine, receiver, writing, seed, chunk };
  try {
    const results = await Promise.all(
      prompts.map((prompt, index) => {
        const { result, cancel } = generated(call, prompt, index);
        abandon.push(() => cancel(gone));
        return result;
      }),
    );
    const usage = usageOf(results, request.n);
    if (!request.isStream) {
      const choices = results.map((result, index) => ({ index, ...writing.choice(result) }));
      receiver.send({ ...base, object: writing.object, choices, usage, ...beside });
      return;
    }
    if (request.tellsUsage) receiver.event({ ...base, object: writing.chunk, choices: [], usage });
    receiver.event("[DONE]");
  } catch (error) {
    onAbort();
    throw error instanceof UsageError ? new ApiError(400, error.message, "invalid_value") : error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** One sequence of an answer, sent as it grows if the answer is a stream. */
function generated(
  { request, model, engine, receiver, writing, seed, chunk }: Call,
  prompt: ReadPrompt,
  index: number,
): { result: Promise<Result>; cancel: (error: Error) => void } {
  const { frame, stopsWithinTokens } = request;
  const isStream = request.isStream;
  // JSON is sent as a whole: the message is trimmed at both ends.
  const isGrowing = isStream && frame === null;
  const { stopStrings = [], keepStopString = false } = prompt.sampling ?? {};
  const pieces = new TextStream(Codec.of(model.tokenizer), keepStopString ? [] : stopStrings, {
    withinTokens: stopsWithinTokens,
  });
  const choice = writing.stream(prompt);
  const read: ScoredToken[] = [];
  const tokens: ScoredToken[] = [];
  let sent = 0;
  const tell = (text: string, end: number) => {
    chunk(index, choice.delta(text, tokens.slice(sent, end)));
    sent = end;
  };
  let cancel: (error: Error) => void = () => undefined;
  const result = new Promise<Result>((resolve, reject) => {
    const giveUp = engine.submit(model.batch, {
      ids: prompt.ids,
      sampling: prompt.sampling,
      endIds: prompt.endIds,
      stopsWithinTokens,
      key: { seed, stream: "serve", episode: index, node: 0 },
      topLogprobs: request.logprobs ?? (request.tellsIds ? 0 : undefined),
      onRead: request.echo ? (token: ScoredToken) => read.push(token) : undefined,
      onToken: (token) => {
        if (tokens.length === 0) receiver.onFirstToken();
        tokens.push(token);
        if (!isGrowing) return;
        const text = pieces.push(token.id);
        // Log-probabilities come with the text of their tokens.
        if (text !== "") tell(text, pieces.isTold ? tokens.length : sent);
      },
      onFinish: (continuation) => {
        const text = frame === null ? continuation.text : jsonAnswer(frame, continuation.text.trim());
        if (isStream) {
          const rest = isGrowing ? pieces.end(continuation.text) : text;
          const end = Math.max(sent, continuation.ids.length);
          if (rest !== "" || end > sent) tell(rest, end);
          chunk(index, { ...choice.delta("", []), finish_reason: reasonOf(continuation) });
        }
        resolve({ prompt, text, read, tokens, continuation });
      },
      onError: reject,
    });
    cancel = (error) => {
      giveUp();
      reject(error);
    };
    if (isStream) {
      const first = choice.first();
      if (first !== null) chunk(index, first);
    }
  });
  return { result, cancel };
}

/**
 * The prompts of one request count once for all their sequences. The number of cached tokens is not reported: it
 * would reveal what other clients have sent.
 */
function usageOf(results: readonly Result[], n: number): object {
  const prompts = results.filter((_, at) => at % n === 0);
  const prompt = prompts.reduce((sum, { prompt: { ids } }) => sum + ids.length, 0);
  const completion = results.reduce((sum, { tokens }) => sum + tokens.length, 0);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}
