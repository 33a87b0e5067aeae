import { noGrad, scope, tensor, type Tensor } from "@astra-rl/torch";
import { UsageError, keyedUniform } from "@astra-rl/base";
import type { CausalLM } from "../causal-lm.js";
import { checkTokenIds, idTensor } from "../token-ids.js";
import { CacheView } from "./cache-view.js";
import { placeFor, Row, type ContinuationRequest, type Slot } from "./continuous-row.js";
import { drawTokens, seenIds } from "./draw-tokens.js";
import { bytesPerColumn, cacheShape, KeyValueCache } from "./key-value-cache.js";
import { mostColumns, mostStates, statesOf } from "./pass.js";
import { resolveSampling } from "./sampling.js";
import { scoredTokens, type ScoredToken } from "./scored-tokens.js";
import { WorkCounters } from "./session-counters.js";
import { noFiniteLogits } from "./finite-logits.js";
import { decodeText, type FinishReason, type TokenDecoder } from "./stop.js";

/** Initial number of columns of the cache. */
const FIRST_COLUMNS = 128;

export interface ContinuousBatchOptions {
  /** Maximum number of texts computed together; each has a row of the cache. Default 16. */
  rows?: number;
  /** Limit of the key/value cache in bytes; it determines `window`. Default: none. */
  cacheBytes?: number;
  /**
   * Maximum tokens of given texts prefilled in one step; longer texts are prefilled in several steps, while others are
   * sampled. Default 512.
   */
  tokensPerStep?: number;
}

/**
 * Generates with continuous batching: each step samples one token for every text that is prefilled, and prefills tokens
 * of new texts. A text's result does not depend on the others.
 *
 * Each text has a row of one key/value cache. Rows keep their contents when a text ends, and a text with the same
 * prefix takes over the columns: all rows together form the prefix cache.
 */
export class ContinuousBatch {
  readonly work = new WorkCounters();
  /** Tokens of given texts that were taken from the cache. */
  tokensReused = 0;
  /** Maximum tokens of a text together with its continuation. */
  readonly window: number;
  readonly #slots: Slot[];
  readonly #tokensPerStep: number;
  readonly #waiting: Row[] = [];
  #cache: KeyValueCache | null = null;
  /** The view of the last step that sampled, as long as the same rows are sampled. */
  #view: { slots: string; view: CacheView } | null = null;
  #steps = 0;

  /** @throws UsageError if `cacheBytes` is too small for anything */
  constructor(
    readonly model: CausalLM,
    readonly tokenizer: TokenDecoder,
    { rows = 16, cacheBytes = Infinity, tokensPerStep = 512 }: ContinuousBatchOptions = {},
  ) {
    const { contextLength } = model.config;
    const held = Math.floor(cacheBytes / (rows * bytesPerColumn(cacheShape(model))));
    this.window = Math.min(contextLength, held);
    if (this.window < 2) {
      throw new UsageError(
        "cache-too-small",
        `a cache of ${cacheBytes} bytes holds ${held} tokens for each of ${rows} texts; allow more memory, or fewer texts at a time`,
      );
    }
    this.#tokensPerStep = tokensPerStep;
    this.#slots = Array.from({ length: rows }, (_, index) => ({ index, ids: [], row: null, freed: 0 }));
  }

  /** Texts that are being prefilled or continued. */
  get running(): number {
    return this.#slots.filter(({ row }) => row !== null).length;
  }

  /** Texts that wait for a row. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get cacheBytes(): number {
    return this.#cache?.bytes ?? 0;
  }

  /**
   * Adds a text; nothing is computed before the next `step`.
   *
   * @returns a function that cancels it
   * @throws UsageError for ids outside the vocabulary, sampling options out of range, and texts that do not fit the
   * context window
   */
  submit(request: ContinuationRequest): () => void {
    const sampling = request.sampling === null ? null : resolveSampling(request.sampling);
    checkTokenIds("ids", request.ids, this.model.config.vocabSize);
    const row = new Row(request, sampling, this.model, this.tokenizer);
    const most = row.given + (sampling?.maxNewTokens ?? 0);
    if (most > this.window) {
      throw new UsageError(
        "exceeds-window",
        `${row.given} tokens and up to ${sampling?.maxNewTokens ?? 0} new ones are more than the window of ${this.window}`,
      );
    }
    if (sampling !== null && !sampling.greedy && request.key === undefined) {
      throw new UsageError("missing-draw-key", "sampling without greedy decoding needs a key");
    }
    this.#waiting.push(row);
    return () => {
      const at = this.#waiting.indexOf(row);
      if (at >= 0) this.#waiting.splice(at, 1);
      this.#free(row);
    };
  }

  /** Computes one step. @returns whether anything is left to do */
  step(): boolean {
    this.#steps += 1;
    this.#admit();
    const rows = this.#slots.flatMap(({ row }) => row ?? []);
    const sampling = rows.filter((row) => row.pending === 1);
    const reading = rows.filter((row) => row.pending > 1);
    if (sampling.length > 0) this.#pass(sampling, 1);
    // Callbacks of the first pass may have cancelled some of the others.
    const left = reading.filter(({ slot }) => slot !== null);
    if (left.length > 0) {
      // An equal share for each, so that a short text does not wait for a long one.
      const share = Math.max(16, Math.floor(this.#tokensPerStep / left.length));
      this.#pass(left, Math.min(share, Math.max(...left.map(({ pending }) => pending))));
    }
    return this.running + this.waiting > 0;
  }

  /** Frees the cache. Texts in progress are cancelled. */
  dispose(): void {
    this.#waiting.length = 0;
    for (const slot of this.#slots) slot.row = null;
    this.#forget();
  }

  /** Assigns rows of the cache to waiting texts, first come, first served. */
  #admit(): void {
    for (const row of this.#waiting.slice()) {
      // The caller may have cancelled it when another one failed.
      if (!this.#waiting.includes(row)) continue;
      if (this.#slots.every(({ row: user }) => user !== null)) return;
      const place = placeFor(row, this.#slots);
      if (place === null) continue;
      this.#waiting.splice(this.#waiting.indexOf(row), 1);
      const { slot, source, length } = place;
      row.reused = length;
      if (row.reused > 0 && slot !== source) {
        try {
          this.#cache!.copyRow(source.index, slot.index, length);
        } catch (error) {
          this.#forget();
          row.request.onError(error as Error);
          continue;
        }
      }
      row.cached = row.reused;
      row.slot = slot;
      slot.row = row;
      slot.ids = [];
      this.tokensReused += row.reused;
    }
  }

  #free(row: Row): void {
    const { slot } = row;
    if (slot === null) return;
    slot.ids = row.ids.slice(0, row.cached);
    slot.row = null;
    slot.freed = this.#steps;
    row.slot = null;
  }

  /** Runs the model on up to `width` pending tokens of each row, and samples for those that have none left. */
  #pass(rows: readonly Row[], width: number): void {
    try {
      noGrad(() => scope(() => this.#run(rows, Math.min(width, mostColumns(this.model, rows)))));
    } catch (error) {
      this.#forget();
      for (const row of rows) if (row.slot !== null) this.#fail(row, error as Error);
    }
  }

  /** Calls a caller's function: an exception ends only its own text. */
  #alone(row: Row, tell: () => void): void {
    if (row.slot === null) return;
    try {
      tell();
    } catch (error) {
      this.#fail(row, error as Error);
    }
  }

  #fail(row: Row, error: Error): void {
    this.#free(row);
    row.request.onError(error);
  }

  /** Discards the cache, which a failure may have left inconsistent. Texts in progress are prefilled again. */
  #forget(): void {
    this.#view?.view.dispose();
    this.#view = null;
    this.#cache?.dispose();
    this.#cache = null;
    for (const slot of this.#slots) {
      slot.ids = [];
      if (slot.row !== null) slot.row.cached = 0;
    }
  }

  #run(rows: readonly Row[], width: number): void {
    const counts = rows.map(({ pending }) => Math.min(width, pending));
    this.#reserve(rows.map((row, at) => [row.slot!.index, row.cached + counts[at]!] as const));
    const places: number[] = [];
    const scored: { row: Row; from: number; to: number; first: number }[] = [];
    const ready: { row: Row; at: number }[] = [];
    rows.forEach((row, at) => {
      const count = counts[at]!;
      const end = row.cached + count;
      if (row.isScored && row.cached < row.given) {
        // The state of each token scores the next one, if that was given.
        const to = Math.min(end, row.given - 1);
        scored.push({ row, from: row.cached, to, first: places.length });
        for (let index = row.cached; index < to; index += 1) places.push(at * width + index - row.cached);
      }
      if (end < row.ids.length) return;
      ready.push({ row, at: places.length });
      places.push(at * width + count - 1);
    });
    const starts = rows.map(({ cached }) => cached);
    const isWhole = ready.length === rows.length && width === 1;
    const pass = { starts, counts, width };
    const states = statesOf(this.model, this.#viewOf(rows), rows, pass, isWhole ? null : places); // [places, D]
    const forwarded = counts.reduce((sum, count) => sum + count, 0);
    rows.forEach((row, at) => {
      const given = Math.max(0, Math.min(row.given, row.cached + counts[at]!) - row.cached);
      row.cached += counts[at]!;
      this.work.add({ tokensRead: given });
    });
    this.work.add({ tokensForwarded: forwarded, tokensPadded: rows.length * width - forwarded });
    for (const { row, from, to, first } of scored) this.#tellRead(row, states, { from, to, first });
    this.#sample(
      ready.map(({ row }) => row),
      selected(
        states,
        ready.map(({ at }) => at),
      ),
    );
  }

  /** Allocates this many columns in each of these rows of the cache. */
  #reserve(needed: readonly (readonly [slot: number, columns: number])[]): void {
    const most = Math.max(...needed.map(([, columns]) => columns));
    if (this.#cache === null) {
      const columns = Math.min(this.window, Math.max(FIRST_COLUMNS, most));
      const capacities = this.#slots.map(() => columns);
      this.#cache = KeyValueCache.make(cacheShape(this.model), capacities, Infinity);
    }
    const capacities = this.#cache.capacities();
    if (most <= capacities[0]!) return;
    this.#cache.reserve(
      capacities.map(() => most),
      this.window,
    );
  }

  #viewOf(rows: readonly Row[]): CacheView {
    const indices = rows.map(({ slot }) => slot!.index);
    const slots = indices.join();
    if (this.#view?.slots === slots) return this.#view.view;
    this.#view?.view.dispose();
    this.#view = null;
    const view = new CacheView(this.#cache!, indices);
    this.#view = { slots, view };
    return view;
  }

  /**
   * Reports the log-probabilities of given tokens `from + 1` to `to`, from the states before them, and of the first.
   */
  #tellRead(
    row: Row,
    states: Tensor,
    { from, to, first }: { from: number; to: number; first: number },
  ): void {
    const { onRead, topLogprobs = 0 } = row.request;
    if (from === 0) this.#alone(row, () => onRead!({ id: row.ids[0]!, logprob: null, top: [] }));
    const part = mostStates(this.model);
    for (let start = from; start < to && row.slot !== null; start += part) {
      const count = Math.min(part, to - start);
      const ids = row.ids.slice(start + 1, start + 1 + count);
      const tokens = scope(() =>
        scoredTokens(this.model.logits(states.narrow(0, first + start - from, count)), ids, topLogprobs),
      );
      for (const token of tokens) this.#alone(row, () => onRead!(token));
    }
  }

  /** Samples the next token of each row from its state [n, D]. */
  #sample(rows: readonly Row[], states: Tensor): void {
    for (const row of rows) {
      if (row.sampling === null) this.#alone(row, () => this.#finish(row, null, []));
    }
    const sampled = rows.flatMap((row, at) =>
      row.sampling === null || row.slot === null ? [] : [{ row, at }],
    );
    if (sampled.length === 0) return;
    const all = this.model.logits(
      selected(
        states,
        sampled.map(({ at }) => at),
      ),
    ); // [n, V]
    const greatest = Array.from(all.amax([-1]).toTypedArray(), Number);
    sampled.forEach(({ row }, at) => {
      if (!Number.isFinite(greatest[at])) this.#fail(row, noFiniteLogits(greatest[at]!));
    });
    const kept = [...sampled.keys()].filter((at) => sampled[at]!.row.slot !== null);
    if (kept.length === 0) return;
    const going = kept.map((at) => sampled[at]!);
    const logits = selected(all, kept);
    const groups = new Map<string, number[]>();
    going.forEach(({ row }, at) => {
      const held = row.isHeldBack ? [...row.ends.keys()].join() : "";
      const kind = `${row.kind} ${held}`;
      groups.set(kind, [...(groups.get(kind) ?? []), at]);
    });
    const drawn: number[] = [];
    for (const members of groups.values()) {
      const ids = this.#draw(
        members.map((at) => going[at]!.row),
        selected(logits, members),
      );
      members.forEach((at, index) => (drawn[at] = ids[index]!));
    }
    const told = going.flatMap(({ row }, at) => (row.request.topLogprobs === undefined ? [] : [at]));
    const most = Math.max(0, ...told.map((at) => going[at]!.row.request.topLogprobs!));
    const tokens =
      told.length === 0
        ? []
        : scoredTokens(
            selected(logits, told),
            told.map((at) => drawn[at]!),
            most,
          );
    const tokenAt = new Map(told.map((at, index) => [at, tokens[index]!]));
    this.work.add({ tokensGenerated: going.length });
    going.forEach(({ row }, at) => {
      const { logprob = null, top = [] } = tokenAt.get(at) ?? {};
      const token = { id: drawn[at]!, logprob, top: top.slice(0, row.request.topLogprobs ?? 0) };
      this.#alone(row, () => this.#accept(row, token));
    });
  }

  /** One token for each of these rows, with the same sampling options. @param logits [n, V] */
  #draw(rows: readonly Row[], logits: Tensor): number[] {
    const [{ sampling, isHeldBack, ends }] = rows as [Row];
    const { device, config } = this.model;
    const held = isHeldBack ? [...ends.keys()].filter((id) => id < config.vocabSize) : [];
    const { ids } = drawTokens(logits, {
      sampling: sampling!,
      seen: seenIds(rows, sampling!, device),
      heldBack: held.length > 0 ? idTensor(held, device) : null,
      uniforms: sampling!.greedy ? null : tensor(rows.map(uniformOf), { dtype: "float64", device }),
    });
    return Array.from(ids.toTypedArray(), Number);
  }

  #accept(row: Row, token: ScoredToken): void {
    const { sampling } = row;
    row.ids.push(token.id);
    const sampled = row.ids.slice(row.given);
    const reason = row.ends.get(token.id);
    row.request.onToken?.(token);
    if (row.slot === null) return; // cancelled meanwhile
    if (reason !== undefined) {
      this.#finish(row, reason, sampled);
      return;
    }
    const cut = row.stops.find(sampled);
    if (cut !== null && sampling!.keepStopString) this.#finish(row, "stop", sampled);
    else if (cut !== null) this.#finish(row, "stop", sampled.slice(0, cut.kept), cut.text);
    else if (sampled.length >= sampling!.maxNewTokens) this.#finish(row, "length", sampled);
  }

  #finish(row: Row, finished: FinishReason | null, ids: readonly number[], text?: string): void {
    const { reused, request } = row;
    this.#free(row);
    request.onFinish({ ids, text: text ?? decodeText(this.tokenizer, ids), finished, reused });
  }
}

const uniformOf = ({ request: { key }, sampled }: Row) => [keyedUniform(key!, sampled)];

/** Rows of a matrix; not copied if all are selected. */
const selected = (from: Tensor, indices: readonly number[]) =>
  indices.length === from.size(0) ? from : from.indexSelect(0, idTensor(indices, from.device));
