import type { Answer, AnswerError } from "../answer.js";
import type { ChatMessage } from "../conversation.js";

/** What a model reads: a chat, or a text that it continues. */
export type Asked = { messages: readonly ChatMessage[] } | { prompt: string };

/** How an answer is drawn. What is left out is the server's own affair. */
export interface RequestSampling {
  /** Limit of the answer, in tokens. */
  maxNewTokens: number;
  /** 0: the likeliest token. */
  temperature: number;
  seed: number;
  topP?: number;
  /** 0: all tokens. */
  topK?: number;
  minNewTokens?: number;
  repetitionPenalty?: number;
  stopStrings?: readonly string[];
  /** A JSON Schema that the answer has to follow. */
  schema?: object;
}

/** Who offers an API, as `type:` of a configuration names it. */
export interface Provider {
  readonly type: string;
  /** For the template and for editors. */
  readonly summary: string;
  /** Base URL of the provider's own servers. */
  readonly baseURL: string;
  /** Environment variable of the key, which only the provider's own servers get without being told so. */
  readonly keyVariable: string;
}

/**
 * The API of a kind of server: how it is asked, and what its answers mean. Must not know: retries, budgets, journals, systems.
 *
 * A provider is one file with a dialect, and a line in `index.ts`.
 */
export interface Dialect {
  /** Its name as the option `api`. */
  readonly api: string;
  readonly provider: Provider;
  /** Whether it takes chats, by messages with roles, or else a text. */
  readonly isChat: boolean;
  /** Appended to the base URL. */
  readonly path: string;
  /** What follows the path in the description of `api`. */
  readonly use: string;
  /** Names of the parameter that limits an answer: the usual one, and another one that some servers want instead. */
  readonly limits: readonly [string, ...string[]];
  /** Parameters of a request that gives log-probabilities of the answer's tokens; null where there are none. */
  readonly scores: Readonly<Record<string, unknown>> | null;
  /** Options of the sampling that the API has no parameter for. */
  readonly lacks: readonly ("minNewTokens" | "repetitionPenalty")[];
  /** The highest temperature that the API takes. */
  readonly maxTemperature: number;

  /** Headers of every request. @param key null without one */
  headers(key: string | null): Record<string, string>;

  /** The parameters of a request, but for the model's name. @param limit one of `limits` */
  body(asked: Asked, sampling: RequestSampling, limit: string): Record<string, unknown>;

  /** Whether a parameter of `body` has a value that changes nothing, so that it may be left out. */
  isNeutral(name: string, value: unknown): boolean;

  /**
   * Reads the body of an answer with status 200. It alone decides what is an answer, a refusal, filtered or a failure.
   *
   * @param model the name that the server gives its model; null if it is not known yet
   * @throws AnswerError for anything that is no answer
   */
  read(body: unknown, model: string | null): Answer;

  /**
   * What an answer with another status means.
   *
   * @param body as JSON, or the text where it is none
   * @param wait milliseconds that the server asks to wait; null for none
   */
  failure(status: number, body: unknown, wait: number | null): AnswerError;
}
