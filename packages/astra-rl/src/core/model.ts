/**
 * Language models, as far as the method knows them: functions of conversations. What a model is made of, where it runs and
 * how it writes conversations is its own business; what it keeps to be faster may change no result.
 */
import type { Conversation, Message, Reading, ScoreOptions } from "@astra-rl/lm";
import type { Device, Tensor } from "@astra-rl/torch";
import type { NodeKey } from "./draw.js";
import type { Failure } from "./failure.js";
import type { TokenTable } from "./token-table.js";

export { Conversation, Message, type From, type Sampled } from "@astra-rl/lm";

/** Tokens that one model has read (given to it) and generated (sampled from it) since the system was made. */
export interface Work {
  read: number;
  generated: number;
  /** Tokens that passed forward with a gradient; absent for a model that is not trained. */
  trained?: number;
}

export type WorkCounters = Partial<Record<"tester" | "target" | "baseline" | "likelihood", Work>>;

export interface GenerateOptions extends ScoreOptions {
  /** Name the draws of each row: equal keys, weights and conversations give equal messages. */
  keys: readonly NodeKey[];
}

export interface Model {
  readonly name: string;
  /** Whose messages are its own. */
  readonly role: "tester" | "target";
  /** Whether it can say how likely messages are: `logprobs`. */
  readonly tellsLikelihood: boolean;
  /** Whose ids its messages have; models with the same pass ids on to each other as they are. Absent: nobody's business. */
  readonly tokens?: string;
  readonly work: Work;
  /**
   * Its next message in each conversation. A row that failed, after the model's own retries, is a failure beside the
   * others; what is thrown fails all rows, and they are asked one by one.
   */
  generate(
    conversations: readonly Conversation[],
    options: GenerateOptions,
  ): Promise<readonly (Message | Failure)[]>;
  /**
   * log P of the ids of a message after each conversation, without gradients.
   *
   * @param keys name the rows, for a role that several models share
   */
  logprobs?(
    conversations: readonly Conversation[],
    messages: readonly Message[],
    keys?: readonly NodeKey[],
  ): Promise<readonly (readonly number[])[]>;
  /** Whether both are the same frozen weights, so that what one thinks of ids the other thinks too. */
  sharesWeights?(other: Model): boolean;
  /** How it reads a conversation in which a message stands, in its ids: for records. */
  reading?(conversation: Conversation, message: Message): Reading;
  /** Ids of a message, as it drew or reads them, and how many of them stay in the conversation: for records. */
  idsOf?(message: Message): { ids: readonly number[]; kept: number };
  /** Frees what it keeps to be faster. Called at the end of every rollout. */
  release(): void;
  dispose(): void;
}

/**
 * What one pass of the tester says of every token of some messages: tables [B, T] of the same lengths, with a gradient into
 * `parameters()` where gradients are on.
 */
export interface TesterOutput {
  /** log P of each token. */
  logprobs: TokenTable;
  /** Value of the state in which each token is chosen. Absent unless asked for. */
  values?: TokenTable;
  /**
   * Entropy in nats of the whole distribution that each token was one draw of. Absent unless asked for, or where nobody
   * can tell.
   */
  entropy?: TokenTable;
}

/** What is wanted of the tester beside log-probabilities. Default: nothing. */
export interface TesterWants {
  values?: boolean;
  entropy?: boolean;
}

/** The policy: a model whose weights may be trained. */
export interface Tester extends Model {
  /** What training changes; none for a tester that is only evaluated. */
  parameters(): Iterable<Tensor>;
  /** Where its tables lie, and with them those of all that is compared with it. */
  readonly device: Device;
  /** Whether it has a value head, so that `forward` can give values. */
  readonly tellsValues: boolean;
  /** Those of `parameters()` that only values rest on; an algorithm may train them at a rate of their own. */
  valueParameters(): Iterable<Tensor>;
  /**
   * What the weights that are trained say of every id of each message after its conversation, in one pass.
   *
   * @throws UsageError where values are wanted and there is no value head
   */
  forward(
    conversations: readonly Conversation[],
    messages: readonly Message[],
    want?: TesterWants,
  ): TesterOutput;
  /** Writes the tester into a folder, which does not exist yet. */
  save(folder: string): Promise<void>;
  /** Puts saved weights into the parameters, in place: optimizers keep their hold of them. */
  restore(source: string): Promise<void>;
}
