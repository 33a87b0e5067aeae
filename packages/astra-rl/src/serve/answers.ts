import { randomBytes, randomInt } from "node:crypto";
import {
  TextStream,
  type Codec,
  type Continuation,
  type ContinuousBatch,
  type ScoredToken,
} from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import { ApiError } from "./api-error.js";
import { messageAs } from "./attacker.js";
import type { Engine } from "./engine.js";
import {
  parseChat,
  parseCompletion,
  samplingOf,
  type ChatRequest,
  type CompletionRequest,
} from "./requests.js";
import type { Speaker } from "./speaker.js";

/** Tokens of a completion where the request does not say: the API's default. */
const COMPLETION_TOKENS = 16;

/** A model under its name in the API. */
export interface ServedModel {
  name: string;
  batch: ContinuousBatch;
  codec: Codec;
  speaker: Speaker;
  /** A tester fills JSON with its message; a target cannot be held to a schema. */
  role: "tester" | "target";
  jsonField?: string;
}

/** One sequence to generate. */
interface Sequence {
  ids: readonly number[];
  endIds: readonly number[];
}

/** What is the same for all sequences of a request. */
interface Plan {
  model: ServedModel;
  request: ChatRequest | CompletionRequest;
  sequences: readonly Sequence[];
  maxTokens: number | null;
  topLogprobs: number | undefined;
  echo: boolean;
  wire: Wire;
}

/** How an endpoint writes its answers. */
interface Wire {
  object: string;
  chunk: string;
  id: string;
  /** A choice of the whole answer. */
  choice: (result: Result) => object;
  /** The first chunk of a choice, before any text; null for none. */
  first: () => object | null;
  /** @param before tokens of the sequence that were told before */
  delta: (text: string, tokens: readonly ScoredToken[], before?: readonly ScoredToken[]) => object;
  /** What an answer's text becomes; absent: itself, so that it can be streamed. */
  whole?: (text: string) => string;
}

/** A finished sequence. */
interface Result {
  given: Sequence;
  text: string;
  read: readonly ScoredToken[];
  tokens: readonly ScoredToken[];
  continuation: Continuation;
}

/** Where an answer goes. */
export interface Receiver {
  /** Sends the whole answer. */
  send: (body: object) => void;
  /** Sends one event of a stream. */
  event: (body: object | "[DONE]") => void;
  /** A first token came, of any sequence. */
  onFirstToken: () => void;
}

const reasonOf = ({ finished }: Continuation) =>
  finished === "length" || finished === null ? "length" : "stop";

/** The tokens that stay: not those that a stop string cut off. */
const told = (tokens: readonly ScoredToken[], { ids }: Continuation) => tokens.slice(0, ids.length);

const bytesOf = (text: string) => (text.includes("\uFFFD") ? null : [...Buffer.from(text)]);

function spell(codec: Codec, id: number): string {
  return codec.decode([id], { skipSpecialTokens: false });
}

function chatLogprobs(codec: Codec, tokens: readonly ScoredToken[]): object {
  const entry = ({ id, logprob }: { id: number; logprob: number | null }) => {
    const token = spell(codec, id);
    return { token, logprob: finite(logprob!), bytes: bytesOf(token) };
  };
  return {
    content: tokens.map((token) => ({ ...entry(token), top_logprobs: token.top.map(entry) })),
    refusal: null,
  };
}

/** JSON has no −∞, which a token with no probability has; other servers send −9999, too. */
const finite = (logprob: number) => Math.max(-9999, logprob);

function completionLogprobs(
  codec: Codec,
  tokens: readonly ScoredToken[],
  before: readonly ScoredToken[] = [],
): object {
  const texts = tokens.map(({ id }) => spell(codec, id));
  let offset = before.reduce((sum, { id }) => sum + spell(codec, id).length, 0);
  return {
    tokens: texts,
    token_logprobs: tokens.map(({ logprob }) => (logprob === null ? null : finite(logprob))),
    top_logprobs: tokens.map(({ logprob, top }) => {
      // Parts of characters may look alike: the likeliest counts.
      const entries = top.map(({ id, logprob: value }) => [spell(codec, id), finite(value)] as const);
      return logprob === null ? null : Object.fromEntries(entries.toReversed());
    }),
    text_offset: texts.map((text) => {
      const at = offset;
      offset += text.length;
      return at;
    }),
  };
}

export function planChat(model: ServedModel, body: unknown): Plan {
  const request = parseChat(body);
  const { codec, role, jsonField } = model;
  const { response_format: format, return_token_ids: tellsIds } = request;
  if (role === "target" && format !== undefined && format.type !== "text") {
    throw new ApiError(
      400,
      "response_format: text is not held to a schema by this server; leave it out",
      "unsupported_parameter",
      "response_format",
    );
  }
  const { ids, format: reading } = model.speaker.write(request.texts);
  const tells = request.logprobs === true;
  const wire: Wire = {
    object: "chat.completion",
    chunk: "chat.completion.chunk",
    id: `chatcmpl-${randomBytes(12).toString("hex")}`,
    choice: ({ text, tokens, continuation, given }) => ({
      message: { role: "assistant", content: text, refusal: null },
      logprobs: tells ? chatLogprobs(codec, told(tokens, continuation)) : null,
      finish_reason: reasonOf(continuation),
      ...(tellsIds === true ? { token_ids: continuation.ids, prompt_token_ids: given.ids } : {}),
    }),
    first: () => ({ delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }),
    delta: (text, tokens) => ({
      delta: { content: text },
      logprobs: tells ? chatLogprobs(codec, tokens) : null,
      finish_reason: null,
      ...(tellsIds === true ? { token_ids: tokens.map(({ id }) => id) } : {}),
    }),
    ...(format !== undefined && format.type !== "text"
      ? { whole: (text: string) => messageAs(format, text.trim(), jsonField) }
      : {}),
  };
  return {
    model,
    request,
    sequences: Array.from({ length: request.n ?? 1 }, () => ({ ids, endIds: reading.endIds })),
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? null,
    topLogprobs: tells ? (request.top_logprobs ?? 0) : tellsIds === true ? 0 : undefined,
    echo: false,
    wire,
  };
}

export function planCompletion(model: ServedModel, body: unknown): Plan {
  const request = parseCompletion(body);
  const { codec } = model;
  const { echo, logprobs, return_token_ids: tellsIds } = request;
  const rows = request.prompts.map((prompt) => (typeof prompt === "string" ? codec.begin(prompt) : prompt));
  const texts = new Map(
    rows.map((ids, at) => {
      const prompt = request.prompts[at]!;
      return [
        ids,
        typeof prompt === "string" ? prompt : codec.decode(prompt, { skipSpecialTokens: false }),
      ] as const;
    }),
  );
  const wire: Wire = {
    object: "text_completion",
    chunk: "text_completion",
    id: `cmpl-${randomBytes(12).toString("hex")}`,
    choice: ({ text, read, tokens, continuation, given }) => {
      const all = [...read, ...told(tokens, continuation)];
      return {
        text: echo === true ? texts.get(given.ids as number[])! + text : text,
        logprobs: logprobs === undefined ? null : completionLogprobs(codec, all),
        finish_reason: reasonOf(continuation),
        ...(tellsIds === true ? { token_ids: continuation.ids, prompt_token_ids: given.ids } : {}),
      };
    },
    first: () => null,
    delta: (text, tokens, before) => ({
      text,
      logprobs: logprobs === undefined ? null : completionLogprobs(codec, tokens, before),
      finish_reason: null,
      ...(tellsIds === true ? { token_ids: tokens.map(({ id }) => id) } : {}),
    }),
  };
  return {
    model,
    request,
    sequences: rows.flatMap((ids) => Array.from({ length: request.n ?? 1 }, () => ({ ids, endIds: [] }))),
    maxTokens: request.max_tokens ?? COMPLETION_TOKENS,
    topLogprobs: logprobs ?? (tellsIds === true ? 0 : undefined),
    echo: echo === true,
    wire,
  };
}

/**
 * Answers a request.
 *
 * @param signal aborted when the client is gone: its sequences are given up
 * @throws ApiError for what cannot be answered; nothing was sent then, unless the answer is a stream
 */
export async function answer(
  plan: Plan,
  engine: Engine,
  receiver: Receiver,
  signal: AbortSignal,
): Promise<void> {
  const gone = new ApiError(499, "the client is gone");
  if (signal.aborted) throw gone;
  const { model, request, sequences, wire } = plan;
  const samplings = sequences.map((sequence) => samplingFor(plan, sequence));
  engine.admit(sequences.length);
  const base = { id: wire.id, created: Math.floor(Date.now() / 1000), model: model.name };
  const isStream = request.stream === true;
  const seed = request.seed ?? randomInt(2 ** 47);
  const abandon: (() => void)[] = [];
  const onAbort = () => abandon.forEach((give) => give());
  signal.addEventListener("abort", onAbort, { once: true });
  const event = (index: number, choice: object) =>
    receiver.event({ ...base, object: wire.chunk, choices: [{ index, ...choice }] });
  try {
    const results = await Promise.all(
      sequences.map((sequence, index) => {
        const sampling = samplings[index]!;
        const stops = sampling?.stopStrings ?? [];
        return new Promise<Result>((resolve, reject) => {
          const stream = new TextStream(model.codec, stops);
          const read: ScoredToken[] = [];
          const tokens: ScoredToken[] = [];
          let sent = 0;
          const tell = (text: string, end: number) => {
            event(index, wire.delta(text, tokens.slice(sent, end), tokens.slice(0, sent)));
            sent = end;
          };
          const cancel = engine.submit(model.batch, {
            ids: sequence.ids,
            sampling,
            endIds: sequence.endIds,
            key: { seed, stream: "serve", episode: index, node: 0 },
            topLogprobs: plan.topLogprobs,
            onRead: plan.echo ? (token: ScoredToken) => read.push(token) : undefined,
            onToken: (token) => {
              if (tokens.length === 0) receiver.onFirstToken();
              tokens.push(token);
              if (!isStream || wire.whole !== undefined) return;
              const text = stream.push(token.id);
              // Log-probabilities come with the text of their tokens.
              if (text !== "") tell(text, stream.isTold ? tokens.length : sent);
            },
            onFinish: (continuation) => {
              const text = wire.whole?.(continuation.text) ?? continuation.text;
              if (isStream) {
                const rest = wire.whole === undefined ? stream.end(continuation.text) : text;
                const end = Math.max(sent, continuation.ids.length);
                if (rest !== "" || end > sent) tell(rest, end);
                event(index, { ...wire.delta("", []), finish_reason: reasonOf(continuation) });
              }
              resolve({ given: sequence, text, read, tokens, continuation });
            },
            onError: reject,
          });
          abandon.push(() => {
            cancel();
            reject(gone);
          });
          if (isStream) {
            const first = wire.first();
            if (first !== null) event(index, first);
          }
        });
      }),
    );
    const usage = usageOf(results, request.n ?? 1);
    if (!isStream) {
      const choices = results.map((result, index) => ({ index, ...wire.choice(result) }));
      receiver.send({ ...base, object: wire.object, choices, usage });
      return;
    }
    if (request.stream_options?.include_usage === true) {
      receiver.event({ ...base, object: wire.chunk, choices: [], usage });
    }
    receiver.event("[DONE]");
  } catch (error) {
    onAbort();
    throw error instanceof UsageError ? new ApiError(400, error.message, "invalid_value") : error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** @throws ApiError where text and answer do not fit the window */
function samplingFor({ model, request, maxTokens }: Plan, { ids }: Sequence) {
  const { window } = model.batch;
  const length = Math.max(1, ids.length);
  const most = maxTokens ?? window - length;
  if (most === 0 && maxTokens === 0) return null;
  if (most < 1 || length + most > window) {
    const asked = maxTokens === null ? "" : ` and ${most} to be generated`;
    throw new ApiError(
      400,
      `this server's window is ${window} tokens, but the text has ${length}${asked}; shorten either`,
      "context_length_exceeded",
      "messages",
    );
  }
  return samplingOf(request, most);
}

/** The prompts of one request count once for all their sequences. */
function usageOf(results: readonly Result[], n: number): object {
  const prompts = results.filter((_, at) => at % n === 0);
  const sum = (of: (result: Result) => number, over: readonly Result[]) =>
    over.reduce((total, result) => total + of(result), 0);
  const prompt = sum(({ given }) => given.ids.length, prompts);
  const completion = sum(({ tokens }) => tokens.length, results);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum(({ continuation }) => continuation.reused, prompts) },
  };
}
