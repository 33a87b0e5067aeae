import { describeValue, isReadAtOnce, noGrad, UsageError } from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import type { TokenDecoder } from "./stop.js";
import type { DrawKey } from "./keyed-random.js";
import { resolveSampling, type Sampling } from "./sampling.js";
import { RowBatch, withinBudget, type BatchOptions } from "./session-batch.js";
import { CacheBudget } from "./session-budget.js";
import { WorkCounters, type WorkCounts } from "./session-counters.js";
import { decode, RESERVED_COLUMNS, type FinishReason, type Utterance } from "./session-decode.js";
import { SessionRow } from "./session-row.js";

export interface SessionOptions {
  /** Ids that end a generation. Default: the model's `config.eosIds`. */
  endIds?: readonly number[];
  /**
   * Tokens of the context window to leave free whenever a row is truncated, so that a following generation does not
   * truncate it, and prefill the rest, again. Default 0.
   */
  reserve?: number;
  /**
   * Number of leading ids per row that truncation keeps, such as a tokenizer's prefix or a system prompt; ids after
   * them are dropped. One number for all rows or one per row; at most all given ids are pinned, appended ids never.
   * Default 0.
   */
  pinned?: number | readonly number[];
  /** Memory limit of the key/value caches in bytes, or a budget shared by several sessions. Default: no limit. */
  cacheBudget?: number | CacheBudget;
  /** Maximum tokens, including padding, in one prefill pass. Default 2048. */
  tokenBudget?: number;
  /**
   * Minimum saving in bytes for which rows of different lengths get caches of different widths; smaller savings are not
   * worth the extra calls. Does not change results. Default 32 MiB.
   */
  leastSaving?: number;
  /** Removes finished rows from the decode batch. Does not change results. Default true. */
  compaction?: boolean;
  /** Steps between checks of the sampled tokens. Does not change results. Default 1 on the CPU, 8 elsewhere. */
  checkInterval?: number;
  /** Also counts the work of this session and its forks, for example all work of one model. */
  work?: WorkCounters;
  /** Called once for a session and its forks, when text no longer fits the context window. */
  log?: (message: string) => void;
}

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

/** Range of a row's appended ids to score: `from` inclusive, `to` exclusive. */
export type ScoredSpan = readonly [from: number, to: number];

export interface ReadOptions {
  /**
   * true: scores every appended id. false: scores none, and the ids stay pending until needed. Spans by row, ascending
   * and disjoint: scores the ids within them. Default true.
   */
  score?: boolean | readonly (readonly ScoredSpan[])[];
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
  readonly model: CausalLM;
  readonly tokenizer: TokenDecoder;
  /** Work of this session only; forks have their own counters. */
  readonly counters = new WorkCounters();
  readonly #options: SessionOptions;
  readonly #batchOptions: BatchOptions;
  readonly #lineage: Lineage;
  readonly #rows: readonly SessionRow[];
  #batches: RowBatch[];
  #open = true;

  private constructor(
    model: CausalLM,
    tokenizer: TokenDecoder,
    options: SessionOptions & { cacheBudget: CacheBudget },
    lineage: Lineage,
    make: (batchOptions: BatchOptions) => { rows: SessionRow[]; batches: RowBatch[] },
  ) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.#options = options;
    this.#lineage = lineage;
    this.#batchOptions = {
      model,
      budget: options.cacheBudget,
      tokenBudget: options.tokenBudget ?? 2048,
      leastSaving: options.leastSaving ?? 2 ** 25,
      count: (work: Partial<WorkCounts>) => {
        this.counters.add(work);
        options.work?.add(work);
      },
    };
    const { rows, batches } = noGrad(() => make(this.#batchOptions));
    this.#rows = rows;
    this.#batches = batches;
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
    const pins = pinsOf("GenerationSession.open: pinned", pinned, prompts, model);
    const rows = prompts.map((prompt, at) => {
      checkIds(`GenerationSession.open: prompt ${at}`, prompt, model.config.vocabSize);
      return new SessionRow(prompt.length > 0 ? prompt : [standIn(model)], pins[at]!);
    });
    const make = (batchOptions: BatchOptions) => ({ rows, batches: plan(rows, batchOptions, reserve) });
    return new GenerationSession(
      model,
      tokenizer,
      { ...options, cacheBudget: budget },
      { warned: false },
      make,
    );
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
    const parents = rows.map((row) => this.#rows[row]!);
    const { reserve = 0, cacheBudget } = this.#options;
    const make = (batchOptions: BatchOptions) => {
      const chosen = new Set(parents);
      for (const row of chosen) this.#fitWindow(row, reserve, 0);
      const children: (SessionRow | undefined)[] = rows.map(() => undefined);
      const batches: RowBatch[] = [];
      // Prefilling may split this session's batches, so it comes before the loop over them.
      this.#forEachBatch(0, (batch) => void batch.catchUp(chosen), chosen);
      for (const batch of this.#batches) {
        const own = new Set(batch.rows);
        const mine = parents.filter((parent) => own.has(parent));
        const parts = withinBudget(mine, reserve, batchOptions);
        const places = new Map(mine.map((parent) => [parent, []] as [SessionRow, number[]]));
        parents.forEach((parent, at) => places.get(parent)?.push(at));
        for (const part of parts) {
          const [child, made] = batch.children(part, reserve, batchOptions, consume && part === parts.at(-1));
          part.forEach((parent, at) => (children[places.get(parent)!.shift()!] = made[at]!));
          batches.push(child);
        }
      }
      return { rows: children as SessionRow[], batches };
    };
    const options = { ...this.#options, cacheBudget: cacheBudget as CacheBudget };
    try {
      return new GenerationSession(this.model, this.tokenizer, options, this.#lineage, make);
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
      checkIds(where, ids, vocabSize);
      const front = Math.max(1, this.#rows[row]!.pinned);
      if (score !== false && front + ids.length > contextLength) {
        throw new UsageError(
          `${where}: ${ids.length} tokens do not fit behind at least ${front} of context in the model's window of ` +
            `${contextLength}; give fewer at a time`,
        );
      }
      return typeof score === "boolean" ? [...ids.keys()] : indicesOf(where, score[row]!, ids.length);
    });
    this.#rows.forEach((row, at) => row.append(tokens[at]!));
    if (score === false) return this.#rows.map(() => []);
    return noGrad(() => {
      const scored = new Map<SessionRow, number[]>();
      this.#rows.forEach((row, at) => {
        const { length } = tokens[at]!;
        this.#fitWindow(row, this.#options.reserve ?? 0, length);
        const first = row.ids.length - length;
        if (wanted[at]!.length > 0)
          scored.set(
            row,
            wanted[at]!.map((index) => first + index),
          );
      });
      const results = new Map<SessionRow, number[]>();
      this.#forEachBatch(0, (batch) => {
        for (const [row, logprobs] of batch.catchUp(undefined, scored, this.#options.reserve))
          results.set(row, logprobs);
      });
      return this.#rows.map((row) => results.get(row) ?? []);
    });
  }

  /**
   * Replaces the ids of each row; an empty row is handled as in `open`. The cache is kept for the common prefix, the
   * rest is pending. `pinned` is as in `SessionOptions`; absent = unchanged.
   *
   * @throws UsageError if an id is outside the vocabulary
   */
  rewrite(
    rows: readonly (readonly number[])[],
    { pinned }: { pinned?: number | readonly number[] } = {},
  ): void {
    this.#alive("rewrite");
    this.#checkRows("rewrite", rows);
    rows.forEach((ids, row) => {
      checkIds(`GenerationSession.rewrite: row ${row}`, ids, this.model.config.vocabSize);
    });
    const written = rows.map((ids) => (ids.length > 0 ? ids : [standIn(this.model)]));
    const pins =
      pinned === undefined
        ? this.#rows.map((row) => row.pinned)
        : pinsOf("GenerationSession.rewrite: pinned", pinned, rows, this.model);
    this.#rows.forEach((row, at) => row.rewrite(written[at]!, pins[at]!));
  }

  /**
   * Log-probability of one token after each row, under the full distribution, without appending it; `null` skips a row.
   * Pending ids are prefilled first.
   */
  peek(ids: readonly (number | null)[]): (number | null)[] {
    this.#alive("peek");
    this.#checkRows("peek", ids);
    ids.forEach((id, row) => {
      if (id !== null) checkIds(`GenerationSession.peek: row ${row}`, [id], this.model.config.vocabSize);
    });
    const asked = new Set(this.#rows.filter((_, at) => ids[at] !== null));
    const answers = new Map<SessionRow, number>();
    const wanted = new Map(this.#rows.map((row, at) => [row, ids[at]!]));
    return noGrad(() => {
      for (const row of asked) this.#fitWindow(row, this.#options.reserve ?? 0, 0);
      this.#forEachBatch(
        0,
        (batch) => {
          batch.catchUp(asked);
          const rows = batch.rows.filter((row) => asked.has(row));
          // Prefilling has restored evicted batches, so no row has pending ids here.
          const logprobs = batch.peek(
            rows,
            rows.map((row) => wanted.get(row)!),
          );
          rows.forEach((row, at) => answers.set(row, logprobs[at]!));
        },
        asked,
      );
      return this.#rows.map((row) => answers.get(row) ?? null);
    });
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
    const { contextLength } = this.model.config;
    const front = this.#rows.reduce((most, row) => Math.max(most, row.pinned), 1);
    if (front + maxNewTokens > contextLength) {
      const context = front === 1 ? "at least one token of context" : `the ${front} pinned tokens`;
      throw new UsageError(
        `sampling.maxNewTokens: must leave ${context} in the model's window of ` +
          `${contextLength}, got ${maxNewTokens}`,
      );
    }
    if (!greedy) this.#checkRows("generate: keys", keys);
    const keyOf = new Map(this.#rows.map((row, at) => [row, keys[at]!]));
    const utterances = noGrad(() => {
      const spoken = new Map<SessionRow, Utterance>();
      for (const row of this.#rows) this.#fitWindow(row, maxNewTokens, 0, maxNewTokens);
      this.#forEachBatch(maxNewTokens, (batch) => {
        batch.catchUp(undefined, undefined, Math.min(maxNewTokens, RESERVED_COLUMNS));
        const result = decode(batch, keyOf, {
          model: this.model,
          tokenizer: this.tokenizer,
          sampling: resolved,
          endIds: this.#options.endIds ?? this.model.config.eosIds,
          compaction: this.#options.compaction ?? true,
          checkInterval: this.#options.checkInterval ?? (isReadAtOnce(this.model.device) ? 1 : 8),
        });
        for (const [row, utterance] of result) spoken.set(row, utterance);
      });
      return this.#rows.map((row) => spoken.get(row)!);
    });
    return {
      ids: utterances.map(({ ids }) => ids),
      text: utterances.map(({ text }) => text),
      logprobs: utterances.map(({ logprobs }) => logprobs),
      behaviourLogprobs: utterances.map(({ behaviour }) => behaviour),
      finished: utterances.map(({ finished }) => finished),
      kept: utterances.map(({ kept }) => kept),
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
    if (!this.#open) throw new UsageError(`GenerationSession.${what}: the session was disposed of`);
  }

  #checkRows(what: string, given: readonly unknown[]): void {
    if (given.length !== this.#rows.length) {
      throw new UsageError(
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
    if (this.#lineage.warned) return;
    this.#lineage.warned = true;
    this.#options.log?.(
      `text is longer than the model's window of ${contextLength} tokens: the earliest tokens are left out`,
    );
  }

  /**
   * Calls `run` for every batch that contains one of the chosen rows. A batch that would exceed the memory budget is
   * split first; its parts start without a cache.
   *
   * @param more columns that will be added in addition to pending ids
   */
  #forEachBatch(more: number, run: (batch: RowBatch) => void, chosen?: ReadonlySet<SessionRow>): void {
    const { budget } = this.#batchOptions;
    for (const batch of this.#batches.slice()) {
      if (chosen !== undefined && !batch.rows.some((row) => chosen.has(row))) continue;
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
        run(part);
      }
    }
  }
}

/** Creates batches for rows without a cache: one, unless the budget requires more; then of rows of similar length. */
function plan(rows: readonly SessionRow[], options: BatchOptions, reserve: number): RowBatch[] {
  return withinBudget(rows, reserve, options).map((part) => new RowBatch(part, options));
}

/** The id that replaces an empty text. @throws UsageError if the model has none */
export function standIn(model: CausalLM): number {
  const { bosId, eosIds } = model.config;
  const id = bosId ?? eosIds[0];
  if (id === undefined) {
    throw new UsageError(
      "GenerationSession.open: an empty prompt needs a beginning-of-text or end-of-text token to stand in for it, " +
        "and this model has neither; give at least one token",
    );
  }
  return id;
}

/** Number of pinned leading ids per row. */
function pinsOf(
  what: string,
  pinned: number | readonly number[],
  rows: readonly (readonly number[])[],
  model: CausalLM,
): number[] {
  const pins = typeof pinned === "number" ? rows.map(() => pinned) : [...pinned];
  if (pins.length !== rows.length) {
    throw new UsageError(`${what}: expected one number for each of ${rows.length} rows, got ${pins.length}`);
  }
  for (const [row, pin] of pins.entries()) {
    checkWhole(what, pin, 0);
    const most = model.config.contextLength - 1;
    if (Math.min(pin, rows[row]!.length) > most) checkWhole(what, pin, 0, most);
  }
  return pins;
}

/** The indices within the spans. */
function indicesOf(where: string, spans: readonly ScoredSpan[], length: number): number[] {
  const indices: number[] = [];
  let end = 0;
  for (const [from, to] of spans) {
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < end || to < from || to > length) {
      throw new UsageError(
        `${where}: spans to score must be [from, to] in ascending order within its ${length} ids, ` +
          `got ${describeValue(spans)}`,
      );
    }
    for (let index = from; index < to; index += 1) indices.push(index);
    end = to;
  }
  return indices;
}

function checkWhole(what: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
    throw new UsageError(`${what}: must be a whole number ${range}, got ${describeValue(value)}`);
  }
}

function checkIds(where: string, ids: readonly number[], vocabSize: number): void {
  for (const id of ids) {
    if (!Number.isSafeInteger(id) || id < 0 || id >= vocabSize) {
      throw new UsageError(
        `${where}: a token id must be a whole number from 0 to ${vocabSize - 1}, got ${describeValue(id)}`,
      );
    }
  }
}
