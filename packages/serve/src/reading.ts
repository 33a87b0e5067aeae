import { Codec, Tokenizer, type Sampling } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import { ApiError } from "./api-error.js";
import { jsonFrame, type JsonFrame } from "./json-answer.js";
import {
  MOST_SEQUENCES,
  parseChat,
  parseCompletion,
  safeSeed,
  samplingOf,
  type ChatRequest,
  type CompletionRequest,
  type SamplingDefaults,
} from "./requests.js";
import { Speaker, type SpeakerOptions } from "./speaker.js";

/** Default number of tokens of a completion: the API's default. */
const COMPLETION_TOKENS = 16;

/** Bytes of a request in addition to its texts. */
const BESIDE = 2 ** 19;
/** Bytes of JSON that one byte of a text may take: `\u0061`. */
const ESCAPED = 6;

/** Settings for parsing requests to a model. */
export interface ReadingOptions extends SpeakerOptions {
  /** A tester fills JSON with its message, under this key; a target does not support output schemas. */
  jsonField?: string;
  /** Default sampling settings. Default: the API's defaults. */
  sampling?: SamplingDefaults;
}

/** A model for the thread that parses its requests. */
export interface ReadModel extends ReadingOptions {
  name: string;
  window: number;
  tokenizerFiles: ReadonlyMap<string, Uint8Array>;
}

export type Endpoint = "/v1/chat/completions" | "/v1/completions";

/** One text to be continued. */
export interface ReadPrompt {
  ids: readonly number[];
  endIds: readonly number[];
  /** null: it is only scored. */
  sampling: Sampling | null;
  /** For a completion with `echo`: the prompt as text, and the offset of each of its tokens, in code points. */
  text: string;
  offsets: readonly number[];
}

/** A request as ids: everything that its answer depends on. */
export interface ReadRequest {
  endpoint: Endpoint;
  model: string;
  prompts: readonly ReadPrompt[];
  /** Sequences for each prompt. */
  n: number;
  seed: number | null;
  stopsWithinTokens: boolean;
  /** Number of most likely tokens to return with each token; null: no log-probabilities. */
  logprobs: number | null;
  echo: boolean;
  tellsIds: boolean;
  isStream: boolean;
  tellsUsage: boolean;
  frame: JsonFrame | null;
}

/** Parses requests: from bytes to ids. Requires no engine, so that it can run in a separate thread. */
export class RequestReader {
  readonly #models: ReadonlyMap<string, ModelReader>;

  constructor(models: readonly ReadModel[]) {
    this.#models = new Map(models.map((model) => [model.name, new ModelReader(model)]));
  }

  /** By endpoint, bytes of the longest request that may fit the window of a model. */
  get limits(): Readonly<Record<Endpoint, number>> {
    const text = Math.max(...[...this.#models.values()].map(({ mostBytes }) => mostBytes)) * ESCAPED;
    return {
      "/v1/chat/completions": BESIDE + text,
      "/v1/completions": BESIDE + MOST_SEQUENCES * text,
    };
  }

  /** @throws ApiError for requests that cannot be answered */
  read(endpoint: Endpoint, bytes: Uint8Array): ReadRequest {
    const body = jsonOf(bytes);
    const reader = this.#find((body as { model?: unknown } | null)?.model);
    try {
      return endpoint === "/v1/completions" ? reader.completion(body) : reader.chat(body);
    } catch (error) {
      // For example, a chat template that does not accept this conversation.
      throw error instanceof UsageError
        ? new ApiError(400, error.message, "invalid_value", "messages")
        : error;
    }
  }

  #find(name: unknown): ModelReader {
    const names = [...this.#models.keys()].join(", ");
    if (typeof name !== "string") {
      const rule = name === undefined || name === null ? "is required" : "must be a string";
      throw new ApiError(400, `model: ${rule}; this server has ${names}`, "invalid_value", "model");
    }
    const found = this.#models.get(name);
    if (found !== undefined) return found;
    throw unknownModel(name, names);
  }
}

export const unknownModel = (name: string, names: string) =>
  new ApiError(404, `model: this server has ${names}, not ${shown(name)}`, "model_not_found", "model");

export const shown = (text: string) => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);

/** @throws ApiError for invalid JSON */
function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)) as unknown;
  } catch {
    throw new ApiError(400, "the body is not JSON in UTF-8", "invalid_json");
  }
}

class ModelReader {
  readonly #codec: Codec;
  readonly #speaker: Speaker;
  /** Bytes of the longest token. */
  readonly #longest: number;

  constructor(readonly model: ReadModel) {
    // Messages begin with the model's name: clients do not see paths of this machine.
    const tokenizer = Tokenizer.fromFiles(model.tokenizerFiles, model.name);
    this.#codec = Codec.of(tokenizer);
    this.#speaker = new Speaker(model.name, tokenizer, model);
    let longest = 1;
    for (let id = 0; id < tokenizer.vocabSize; id += 1) {
      longest = Math.max(longest, this.#codec.bytesOf(id).length);
    }
    this.#longest = longest;
  }

  /** Bytes of a text that may fit the window. */
  get mostBytes(): number {
    return this.model.window * this.#longest;
  }

  chat(body: unknown): ReadRequest {
    const request = parseChat(body);
    const { role, jsonField } = this.model;
    const { response_format: format } = request;
    if (role === "target" && format !== undefined && format.type !== "text") {
      throw new ApiError(
        400,
        "response_format: output schemas are not supported for this model; leave it out",
        "unsupported_parameter",
        "response_format",
      );
    }
    const frame = jsonFrame(format, jsonField);
    const { goal = null } = request;
    this.#checkLength([...request.texts.map(({ content }) => content), goal ?? ""], "messages");
    const { ids, format: written } = this.#speaker.write(request.texts, goal);
    const asked = request.max_completion_tokens ?? request.max_tokens ?? null;
    const sampling = this.#sampling(request, ids, { asked, otherwise: Infinity, param: "messages" });
    const tells = request.logprobs === true;
    return {
      ...this.#shared(request),
      endpoint: "/v1/chat/completions",
      prompts: [{ ids, endIds: written.endIds, sampling, text: "", offsets: [] }],
      logprobs: tells ? (request.top_logprobs ?? 0) : null,
      echo: false,
      frame,
    };
  }

  completion(body: unknown): ReadRequest {
    const request = parseCompletion(body);
    const { echo = false, logprobs = null } = request;
    const length = { asked: request.max_tokens ?? null, otherwise: COMPLETION_TOKENS, param: "prompt" };
    const prompts = request.prompts.map((prompt): ReadPrompt => {
      const ids = this.#idsOf(prompt);
      const sampling = this.#sampling(request, ids, length);
      const spelled = echo ? this.#spelled(prompt, ids) : { text: "", offsets: [] };
      return { ids, endIds: [], sampling, ...spelled };
    });
    return { ...this.#shared(request), endpoint: "/v1/completions", prompts, logprobs, echo, frame: null };
  }

  #shared(request: ChatRequest | CompletionRequest) {
    return {
      model: this.model.name,
      n: request.n ?? 1,
      seed: request.seed === undefined ? null : safeSeed(request.seed),
      // A run's own stop strings cut off whole tokens, as in the run.
      stopsWithinTokens: request.stop !== undefined,
      tellsIds: request.return_token_ids === true,
      isStream: request.stream === true,
      tellsUsage: request.stream_options?.include_usage === true,
    };
  }

  #idsOf(prompt: string | number[]): readonly number[] {
    if (typeof prompt !== "string") {
      if (prompt.length > this.model.window) throw this.#tooLong(`${prompt.length} tokens`, "prompt");
      return prompt;
    }
    this.#checkLength([prompt], "prompt");
    return this.#codec.begin(prompt);
  }

  #spelled(prompt: string | number[], ids: readonly number[]): { text: string; offsets: number[] } {
    const codec = this.#codec;
    const hidden = typeof prompt === "string" ? codec.prefix.length : 0;
    const pieces = codec.spell(ids.slice(hidden), typeof prompt === "string" ? "begin" : "continue");
    let end = 0;
    const offsets = pieces.map((piece) => {
      end += codePoints(piece);
      return end - codePoints(piece);
    });
    // The tokenizer's prefix has no offset in the text.
    const before = Array.from({ length: hidden }, () => 0);
    return {
      text: typeof prompt === "string" ? prompt : pieces.join(""),
      offsets: [...before, ...offsets],
    };
  }

  /**
   * Checked before encoding: a text with more bytes than a window of the longest tokens cannot fit.
   *
   * @throws ApiError 400
   */
  #checkLength(texts: readonly string[], param: string): void {
    const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (bytes > this.mostBytes) throw this.#tooLong(`${bytes} bytes`, param);
  }

  #tooLong(given: string, param: string): ApiError {
    const { window } = this.model;
    return new ApiError(
      400,
      `this server's window is ${window} tokens of at most ${this.#longest} bytes, but the text has ${given}; shorten it`,
      "context_length_exceeded",
      param,
    );
  }

  /** @throws ApiError where text and answer do not fit the window */
  #sampling(
    request: ChatRequest | CompletionRequest,
    ids: readonly number[],
    { asked, otherwise, param }: { asked: number | null; otherwise: number; param: string },
  ): Sampling | null {
    const { window, sampling: defaults = {} } = this.model;
    const length = Math.max(1, ids.length);
    if (asked === 0) return null;
    const room = window - length;
    const most = asked ?? Math.min(defaults.maxNewTokens ?? otherwise, room);
    if (most < 1 || most > room) {
      const wanted = asked === null ? "" : ` and ${most} to be generated`;
      throw new ApiError(
        400,
        `this server's window is ${window} tokens, but the text has ${length}${wanted}; shorten either`,
        "context_length_exceeded",
        param,
      );
    }
    return samplingOf(request, defaults, most);
  }
}

/** The unit of offsets in a text. */
export function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}
