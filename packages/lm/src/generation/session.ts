import { isReadAtOnce, noGrad } from "@astra-rl/torch";
import { UsageError, type DrawKey } from "@astra-rl/base";
import type { CausalLM } from "../causal-lm.js";
import { checkTokenIds } from "../token-ids.js";
import type { FinishReason, TokenDecoder } from "./stop.js";
import { resolveSampling, type Sampling } from "./sampling.js";
import {
  checkWhole,
  indicesOf,
  pinsOf,
  textsOf,
  type ReadOptions,
  type SessionOptions,
} from "./session-arguments.js";
import { RowBatch, withinBudget, type BatchOptions, type Scoring } from "./session-batch.js";
import { CacheBudget } from "./session-budget.js";
import { WorkCounters } from "./session-counters.js";
import type { GeneratedRow } from "./decoding.js";
import { decode, RESERVED_COLUMNS } from "./session-decode.js";
import { SessionRow } from "./session-row.js";

/** Results of `generate`, by row. */
export interface Generation {
  /** Sampled ids, including the end id; truncated before a stop string. */
  ids: number[][];
  /** Text of the ids, without special tokens. */
  text: string[];
  /** Log-probability of each id under the full distribution at temperature 1; empty if not recorded. */
  logprobs: number[][];
  /** Log-probability of each id under the distribution it was sampled from; empty unless requested. */
  behaviourLogprobs: number[][];
  finished: FinishReason[];
  /**
   * How many of the ids stay in the row: all, except a final end or stop id without text (a special token), which is
   * not part of the conversation.
   */
  kept: number[];
}

/** Shared by a session and its forks. */
interface Lineage {
  warned: boolean;
}

/**
 * The engine of rollouts: a batch of texts (rows) that one model prefills and continues, without processing any token
 * twice.
 *
 * Each row holds token ids; the session tracks which of them are cached. Opening and appending compute nothing by
 * themselves: pending ids are processed in the next forward pass. Everything is computed without gradients.
 *
 * Tokens are processed again in two cases, counted in `counters.tokensReread`: text longer than the context window is
 * truncated on the left, which shifts every position; and caches above the memory budget are evicted. (A stop string
 * that spans more than a few dozen tokens costs one more token.)
 */
export class GenerationSession {
  /** Work of this session only; forks have their own counters. */
  readonly counters = new WorkCounters();
  readonly #batchOptions: BatchOptions;
  #rows: readonly SessionRow[] = [];
  /** Together they hold every row once: more than one if the budget requires it. */
  #batches: RowBatch[] = [];
  #open = true;

  private constructor(
    readonly model: CausalLM,
    readonly tokenizer: TokenDecoder,
    private readonly options: SessionOptions & { reserve: number; cacheBudget: CacheBudget },
    private readonly lineage: Lineage,
  ) {
    this.#batchOptions = {
      model,
      budget: options.cacheBudget,
      tokenBudget: options.tokenBudget ?? 2048,
      leastSaving: options.leastSaving ?? 2 ** 25,
      count: (work) => {
        this.counters.add(work);
        options.work?.add(work);
      },
    };
  }

  /**
   * Opens a session with texts given as token ids, to which nothing is added. An empty one is replaced by the model's
   * beginning-of-text token, or its end-of-text token if it has none.
   *
   * @throws UsageError if an id is outside the vocabulary
   */
  static open(
    model: CausalLM,
    tokenizer: TokenDecoder,
    prompts: readonly (readonly number[])[],
    options: SessionOptions = {},
  ): GenerationSession {
    const { cacheBudget = Infinity, reserve = 0, pinned = 0 } = options;
    const budget = typeof cacheBudget === "number" ? new CacheBudget(cacheBudget) : cacheBudget;
    checkWhole("reserve", reserve, 0, model.config.contextLength - 1);
    checkWhole("tokenBudget", options.tokenBudget ?? 1, 1);
    checkWhole("checkInterval", options.checkInterval ?? 1, 1);
    checkWhole("leastSaving", options.leastSaving ?? 0, 0);
    if (options.graphs && options.graphs.model !== model)
      throw new UsageError(
        "other-model",
        "graphs: must be those of the session's model, got those of another",
      );
    const pins = pinsOf("GenerationSession.open: pinned", pinned, prompts, model);
    const rows = textsOf("GenerationSession.open: prompt", prompts, model).map(
      (ids, index) => new SessionRow(ids, index, pins[index]!),
    );
    const session = new GenerationSession(
      model,
      tokenizer,
      { ...options, reserve, cacheBudget: budget },
      { warned: false },
    );
    session.#rows = rows;
    const parts = withinBudget(rows, reserve, session.#batchOptions);
    session.#batches = parts.map((part) => new RowBatch(part, session.#batchOptions));
    return session;
  }

  get rowCount(): number {
    return this.#rows.length;
  }

  /** Tokens read so far; see `counters.tokensRead`. */
  get tokensRead(): number {
    return this.counters.tokensRead;
  }

  /** Tokens sampled so far. */
  get tokensGenerated(): number {
    return this.counters.tokensGenerated;
  }

  /** Memory of this session's key/value caches, in bytes. */
  get cacheBytes(): number {
    return this.#batches.reduce((sum, batch) => sum + batch.cacheBytes, 0);
  }

  /** The current ids of each row: after truncation, and with the replacement for an empty prompt. */
  rows(): number[][] {
    return this.#rows.map((row) => [...row.ids]);
  }

  /**
   * A session whose row i continues this session's row `rows[i]`; rows may repeat. Cached values are copied, not
   * recomputed: pending ids of the chosen rows are prefilled first. Both sessions remain usable, unless `consume` is
   * set: then this one is disposed of, and its memory freed while it is copied.
   */
  fork(rows: readonly number[], { consume = false }: { consume?: boolean } = {}): GenerationSession {
    this.#alive("fork");
    rows.forEach((row) => {
      checkWhole("GenerationSession.fork: row", row, 0, this.#rows.length - 1);
    });
    const { reserve } = this.options;
    const child = new GenerationSession(this.model, this.tokenizer, this.options, this.lineage);
    try {
      noGrad(() => {
        const chosen = new Set(rows.map((row) => this.#rows[row]!));
        for (const row of chosen) this.#fitWindow(row, reserve, 0);
        // Prefilling may split this session's batches, so it comes before the loop over them.
        for (const batch of this.#ready(0, chosen)) batch.prefill({ chosen });
        child.#rows = rows.map((row, index) => this.#rows[row]!.child(index));
        for (const batch of this.#batches) {
          const own = new Set(batch.rows);
          const mine = child.#rows.filter(({ parent }) => own.has(parent!));
          const parts = withinBudget(mine, reserve, child.#batchOptions);
          for (const part of parts) {
            const isLast = part === parts.at(-1);
            child.#batches.push(batch.fork(part, reserve, child.#batchOptions, consume && isLast));
          }
        }
      });
      return child;
    } catch (error) {
      child.dispose();
      throw error;
    } finally {
      if (consume) this.dispose();
    }
  }

  /** Prefills all pending ids. For benchmarks only: other methods do this when they need it. */
  prefill(): void {
    this.read(this.#rows.map(() => []));
  }

  /**
   * Appends tokens to each row (possibly none) and prefills them, unless nothing is scored.
   *
   * @returns by row, the log-probability of each scored token given all preceding tokens, under the full distribution
   * @throws UsageError if an id is outside the vocabulary, a span outside the ids, or a row gets more tokens than the
   * context window can hold together with the pinned ones
   */
  read(tokens: readonly (readonly number[])[], { score = true }: ReadOptions = {}): number[][] {
    this.#alive("read");
    const { contextLength, vocabSize } = this.model.config;
    this.#checkRows("read", tokens);
    if (typeof score !== "boolean") this.#checkRows("read: score", score);
    const wanted = tokens.map((ids, row) => {
      const where = `GenerationSession.read: row ${row}`;
      checkTokenIds(where, ids, vocabSize);
      const front = Math.max(1, this.#rows[row]!.pinned);
      if (score !== false && front + ids.length > contextLength) {
        throw new UsageError(
          "exceeds-window",
          `${where}: ${ids.length} tokens do not fit after at least ${front} of context in the model's window of ` +
            `${contextLength}; give fewer at a time`,
        );
      }
      return typeof score === "boolean" ? [...ids.keys()] : indicesOf(where, score[row]!, ids.length);
    });
    const logprobs = this.#rows.map((): number[] => []);
    this.#rows.forEach((row) => row.append(tokens[row.index]!));
    if (score === false) return logprobs;
    noGrad(() => {
      const indices = this.#rows.map((row) => {
        const { length } = tokens[row.index]!;
        this.#fitWindow(row, this.options.reserve, length);
        return wanted[row.index]!.map((index) => row.ids.length - length + index);
      });
      const scoring: Scoring = { indices, logprobs };
      for (const batch of this.#ready(0)) batch.prefill({ scoring, room: this.options.reserve });
    });
    return logprobs;
  }

  /**
   * Replaces the ids of each row; an empty row is handled as in `open`. The cache is kept for the common prefix, the
   * rest is pending. `pinned` is as in `SessionOptions`; absent = unchanged.
   *
   * @throws UsageError if an id is outside the vocabulary
   */
  rewrite(
    rows: readonly (readonly number[])[],
    { pinned = this.#rows.map((row) => row.pinned) }: { pinned?: number | readonly number[] } = {},
  ): void {
    this.#alive("rewrite");
    this.#checkRows("rewrite", rows);
    const texts = textsOf("GenerationSession.rewrite: row", rows, this.model);
    const pins = pinsOf("GenerationSession.rewrite: pinned", pinned, rows, this.model);
    this.#rows.forEach((row) => row.rewrite(texts[row.index]!, pins[row.index]!));
  }

  /**
   * Log-probability of one token after each row, under the full distribution, without appending it; `null` skips a row.
   * Pending ids are prefilled first.
   */
  peek(ids: readonly (number | null)[]): (number | null)[] {
    this.#alive("peek");
    this.#checkRows("peek", ids);
    ids.forEach((id, row) => {
      if (id !== null) checkTokenIds(`GenerationSession.peek: row ${row}`, [id], this.model.config.vocabSize);
    });
    const chosen = new Set(this.#rows.filter(({ index }) => ids[index] !== null));
    const answers = ids.map((): number | null => null);
    noGrad(() => {
      for (const row of chosen) this.#fitWindow(row, this.options.reserve, 0);
      for (const batch of this.#ready(0, chosen)) {
        batch.prefill({ chosen });
        const rows = batch.rows.filter((row) => chosen.has(row));
        const logprobs = batch.peek(
          rows,
          rows.map(({ index }) => ids[index]!),
        );
        rows.forEach(({ index }, at) => (answers[index] = logprobs[at]!));
      }
    });
    return answers;
  }

  /**
   * Samples one continuation per row and appends it to the row, except an end id without text. Rows are first truncated
   * on the left so that they fit the context window together with maxNewTokens.
   *
   * @param keys random key of each row; not needed for greedy decoding
   */
  generate(sampling: Sampling, keys: readonly DrawKey[] = []): Generation {
    this.#alive("generate");
    const resolved = resolveSampling(sampling);
    const { maxNewTokens, greedy } = resolved;
    const { contextLength, eosIds } = this.model.config;
    const front = this.#rows.reduce((most, row) => Math.max(most, row.pinned), 1);
    if (front + maxNewTokens > contextLength) {
      const context = front === 1 ? "at least one token of context" : `the ${front} pinned tokens`;
      throw new UsageError(
        "no-room-for-context",
        `sampling.maxNewTokens: must leave ${context} in the model's window of ` +
          `${contextLength}, got ${maxNewTokens}`,
      );
    }
    if (!greedy) this.#checkRows("generate: keys", keys);
    const { endIds = eosIds, compaction = true } = this.options;
    const { checkInterval = isReadAtOnce(this.model.device) ? 1 : 8 } = this.options;
    const { model, tokenizer } = this;
    const { graphs = null } = this.options;
    const options = { model, tokenizer, sampling: resolved, endIds, compaction, checkInterval, graphs };
    const generated: GeneratedRow[] = [];
    noGrad(() => {
      for (const row of this.#rows) this.#fitWindow(row, maxNewTokens, 0, maxNewTokens);
      for (const batch of this.#ready(maxNewTokens)) {
        batch.prefill({ room: Math.min(maxNewTokens, RESERVED_COLUMNS) });
        decode(batch, keys, options, ({ index }, result) => (generated[index] = result));
      }
    });
    return {
      ids: generated.map(({ ids }) => ids),
      text: generated.map(({ text }) => text),
      logprobs: generated.map(({ logprobs }) => logprobs),
      behaviourLogprobs: generated.map(({ behaviour }) => behaviour),
      finished: generated.map(({ finished }) => finished),
      kept: generated.map(({ kept }) => kept),
    };
  }

  /** Frees the caches. The session cannot be used afterwards; its forks are not affected. */
  dispose(): void {
    this.#open = false;
    for (const batch of this.#batches) batch.dispose();
    this.#batches = [];
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #alive(what: string): void {
    if (!this.#open)
      throw new UsageError("session-disposed", `GenerationSession.${what}: the session was disposed of`);
  }

  #checkRows(what: string, given: readonly unknown[]): void {
    if (given.length !== this.#rows.length) {
      throw new UsageError(
        "length-mismatch",
        `GenerationSession.${what}: expected one entry for each of ${this.#rows.length} rows, got ${given.length}`,
      );
    }
  }

  /**
   * Truncates a row that no longer fits, dropping its first ids after the pinned ones.
   *
   * @param free tokens of the context window to leave free if the row is truncated
   * @param whole number of last ids that must stay, together with the pinned ones, or at least one more, before them
   * @param needed tokens of the context window that must be free
   */
  #fitWindow(row: SessionRow, free: number, whole: number, needed = 0): void {
    const { contextLength } = this.model.config;
    if (row.ids.length + needed <= contextLength) return;
    const kept = Math.max(contextLength - free, Math.min(contextLength, whole + Math.max(1, row.pinned)));
    row.dropLeft(row.ids.length - kept);
    if (this.lineage.warned) return;
    this.lineage.warned = true;
    this.options.log?.(
      `text is longer than the model's window of ${contextLength} tokens: the earliest tokens are left out`,
    );
  }

  /**
   * The batches that contain one of the chosen rows, each with the memory that it needs freed for it. A batch that would
   * exceed the memory budget is split first; its parts start without a cache.
   *
   * @param more columns that will be added in addition to pending ids
   */
  *#ready(more: number, chosen: ReadonlySet<SessionRow> | null = null): Iterable<RowBatch> {
    const { budget } = this.#batchOptions;
    for (const batch of this.#batches.slice()) {
      if (chosen !== null && !batch.rows.some((row) => chosen.has(row))) continue;
      let parts = [batch];
      if (batch.rows.length > 1 && batch.bytesWith(more) > budget.limit) {
        parts = withinBudget(batch.rows, more, this.#batchOptions).map(
          (rows) => new RowBatch(rows, this.#batchOptions),
        );
        // The rows now belong to the parts: only the memory of the original batch is left to free.
        batch.dispose();
        this.#batches.splice(this.#batches.indexOf(batch), 1, ...parts);
      }
      for (const part of parts) {
        budget.touch(part);
        budget.makeRoom(Math.max(0, part.bytesWith(more) - part.cacheBytes), [part]);
        yield part;
      }
    }
  }
}
