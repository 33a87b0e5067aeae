import {
  GenerationSession,
  tokenLogprobs,
  WorkCounters,
  type CacheBudget,
  type CausalLM,
  type DrawKey,
  type Sampling,
  type ScoredRow,
  type Tokenizer,
} from "@astra-rl/lm";
import { noGrad, type Tensor } from "@astra-rl/torch";
import { TokenTable, type NodeKey, type Work } from "../core/index.js";

export type RoleName = "tester" | "target" | "baseline";

/** An utterance as it was sampled. */
export interface Utterance {
  /** Sampled ids, the one that ended the utterance included. */
  ids: readonly number[];
  text: string;
  /** log P of each id under the full distribution, temperature 1. */
  logprobs: readonly number[];
  /** The id that ended the utterance and is no part of its text (a special token); null where there is none. */
  silentEnd: number | null;
}

export interface ModelRoleOptions {
  /** The weights that generate and read, frozen; asked for at each use, since they may move to another copy. */
  model: () => CausalLM;
  tokenizer: Tokenizer;
  sampling: Sampling;
  /** Limit on the memory of key/value caches, shared between roles. */
  cacheBudget: CacheBudget;
  /** Told once when text had to be dropped at the left of a full window. */
  onTruncate: (message: string) => void;
}

/** One model in one role: how it speaks, how it reads, and how much of either it has done. */
export class ModelRole {
  readonly #model: () => CausalLM;
  readonly tokenizer: Tokenizer;
  readonly sampling: Sampling;
  readonly #sessions = new WorkCounters();
  #scored = 0;
  #trained = 0;
  readonly #cacheBudget: CacheBudget;
  readonly #onTruncate: (message: string) => void;
  #truncated = false;

  constructor(
    readonly name: RoleName,
    { model, tokenizer, sampling, cacheBudget, onTruncate }: ModelRoleOptions,
  ) {
    this.#model = model;
    this.tokenizer = tokenizer;
    this.sampling = sampling;
    this.#cacheBudget = cacheBudget;
    this.#onTruncate = onTruncate;
  }

  get model(): CausalLM {
    return this.#model();
  }

  /** Work done so far, in tokens. */
  get work(): Required<Work> {
    return {
      read: this.#sessions.tokensRead + this.#scored,
      generated: this.#sessions.tokensGenerated,
      trained: this.#trained,
    };
  }

  /** Begins conversations with these texts; the caller disposes of the session. */
  open(prompts: readonly (readonly number[])[]): GenerationSession {
    const { model } = this;
    return GenerationSession.open(model, this.tokenizer, prompts, {
      cacheBudget: this.#cacheBudget,
      // Whatever drops text from a row leaves room for the utterance that follows.
      reserve: Math.min(this.sampling.maxNewTokens, model.config.contextLength - 1),
      work: this.#sessions,
      log: () => this.#warnOnce(),
    });
  }

  /** Samples one utterance for each row of a session. */
  speak(session: GenerationSession, keys: readonly NodeKey[]): Utterance[] {
    const named = keys.map((key): DrawKey => ({ ...key, stream: this.name }));
    const { ids, text, logprobs, finished } = session.generate(this.sampling, named);
    return ids.map((row, index) => ({
      ids: row,
      text: text[index]!,
      logprobs: logprobs[index]!,
      silentEnd: finished[index] === "eos" ? this.#silent(row.at(-1)) : null,
    }));
  }

  /** Appends given tokens to each row; log P of each. */
  read(session: GenerationSession, tokens: readonly (readonly number[])[]): number[][] {
    return session.read(tokens);
  }

  /** log P of one token that would come next in each row, without appending it; null for rows that ask nothing. */
  peek(session: GenerationSession, tokens: readonly (number | null)[]): (number | null)[] {
    if (tokens.every((token) => token === null)) return tokens.map(() => null);
    return session.peek(tokens);
  }

  /** log P of each continuation id, without gradients. */
  score(rows: readonly ScoredRow[]): number[][] {
    const counters = { tokensRead: 0 };
    const table = aligned(
      noGrad(() => tokenLogprobs(this.model, rows, { counters })),
      rows,
    );
    this.#scored += counters.tokensRead;
    try {
      return table.rows();
    } finally {
      table.dispose();
    }
  }

  /** log P of each continuation id under weights that are being trained, with a gradient. */
  train(
    model: CausalLM,
    rows: readonly ScoredRow[],
    options: { gradientCheckpointing?: boolean },
  ): TokenTable {
    const counters = { tokensRead: 0 };
    const table = aligned(tokenLogprobs(model, rows, { ...options, counters }), rows);
    this.#trained += counters.tokensRead;
    return table;
  }

  /** An end id, where no text shows it. */
  #silent(id: number | undefined): number | null {
    return id !== undefined && this.tokenizer.decode([id]) === "" ? id : null;
  }

  #warnOnce(): void {
    if (this.#truncated) return;
    this.#truncated = true;
    this.#onTruncate(
      `${this.name}: a conversation is longer than the model's window of ${this.model.config.contextLength} tokens; ` +
        `the oldest tokens are dropped from here on (said once)`,
    );
  }
}

function aligned(logprobs: Tensor, rows: readonly ScoredRow[]): TokenTable {
  return new TokenTable(
    logprobs,
    rows.map((row) => row.continuation.length),
  );
}
