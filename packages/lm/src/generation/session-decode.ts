import { cat, dispose, keep, readsSharedColumns, scope, tensor, type Tensor } from "@astra-rl/torch";
import { TorchError, keyedUniform, type DrawKey } from "@astra-rl/base";
import { idTensor } from "../token-ids.js";
import { CacheView } from "./cache-view.js";
import type { DecodeOptions, Decoding, GeneratedRow, SampledTokens } from "./decoding.js";
import { drawTokens, seenIds } from "./draw-tokens.js";
import { checkLogits, noFiniteLogits } from "./finite-logits.js";
import { decodeText, endsOf, StopDetector, type Cut, type FinishReason } from "./stop.js";
import { sampledLogprobs } from "./sampling-filters.js";
import type { RowBatch } from "./session-batch.js";
import type { SessionRow } from "./session-row.js";
import { sharedColumns } from "./shared-columns.js";
import { StaticDecoding } from "./static/static-decoding.js";

/** Columns reserved at once for a generation: enough for a short one; for a longer one the cache grows. */
export const RESERVED_COLUMNS = 128;
/** Compacting the batch copies rows; with fewer steps left it does not pay. */
const LEAST_STEPS_TO_SHRINK = 4;

/**
 * Samples one continuation for every row of a batch without pending ids, and appends it to the row, except an end id
 * without text. The last id is then pending, unless it was cut off.
 *
 * @param keys by the row's index in the session; not needed for greedy decoding
 * @param onFinish called once for each row
 */
export function decode(
  batch: RowBatch,
  keys: readonly DrawKey[],
  options: DecodeOptions,
  onFinish: (row: SessionRow, generated: GeneratedRow) => void,
): void {
  const decoder = new Decoder(batch, keys, options, onFinish);
  try {
    decoder.run();
  } finally {
    decoder.dispose();
  }
}

/** Row i of each of its tensors belongs to `#rows[i]`. */
class Decoder {
  readonly #stops: StopDetector;
  readonly #ends: ReadonlyMap<number, FinishReason>;
  /** Ids that may not be sampled in the first `minNewTokens` steps. */
  readonly #heldBack: Tensor | null = null;
  /** Rows being computed; finished ones stay until the batch is compacted. */
  #rows: Decoding[];
  #view: CacheView;
  /** The last few hidden states [n, D], newest last: that after `#forwarded` sampled tokens. */
  #history: Tensor[];
  /** int64 [n, T]: ids for the repetition penalty; null = no penalty. */
  #seen: Tensor | null = null;
  /** The last sampled id of each row, int64 [n, 1], which the model has not processed; null at the beginning. */
  #next: Tensor | null = null;
  /** int64 [n, 1]: the column of each row's next token, which is its position, too. */
  #positions: Tensor | null = null;
  /** The random numbers of some steps from `first` on, float64 [steps, n, 1]. */
  #uniforms: { first: number; steps: number; values: Tensor } | null = null;
  /** Sampled since the last check. */
  #unchecked: SampledTokens[] = [];
  /** The rows in the buffers of static steps; null = never. */
  readonly #statics: StaticDecoding | null;
  /** Number of sampled tokens per row that went through the model. */
  #forwarded = 0;
  #computed = 0;
  #useful = 0;

  constructor(
    readonly batch: RowBatch,
    readonly keys: readonly DrawKey[],
    readonly options: DecodeOptions,
    readonly onFinish: (row: SessionRow, generated: GeneratedRow) => void,
  ) {
    const { model, sampling, endIds, tokenizer } = options;
    const { rows } = batch;
    this.#stops = new StopDetector(tokenizer, sampling.stopStrings);
    this.#ends = endsOf(sampling.stopIds, endIds);
    const held = [...this.#ends.keys()].filter((id) => id < model.config.vocabSize);
    if (held.length > 0 && sampling.minNewTokens > 0) this.#heldBack = keep(idTensor(held, model.device));
    this.#rows = rows.map((row) => {
      return { row, start: row.cached, ids: [], logprobs: [], behaviour: [], isFinished: false };
    });
    this.#view = this.#makeView();
    this.#history = [keep(batch.last!.clone())];
    this.#seen = keep(scope(() => seenIds(rows, sampling, model.device)));
    const settings = { sampling, ends: held, interval: options.checkInterval };
    this.#statics = options.graphs && new StaticDecoding(options.graphs, settings);
  }

  run(): void {
    try {
      this.#decode();
    } finally {
      this.#leave();
    }
    this.batch.options.count({ tokensForwarded: this.#useful, tokensPadded: this.#computed - this.#useful });
  }

  #decode(): void {
    const { sampling, checkInterval } = this.options;
    const { maxNewTokens } = sampling;
    this.#sample(0);
    for (let sampled = 1; ;) {
      const unchecked = this.#unchecked.reduce((sum, { ids }) => sum + ids.size(1), 0);
      const isLast = sampled === maxNewTokens;
      if (isLast || unchecked >= checkInterval) {
        this.#check(isLast);
        if (this.#rows.every(({ isFinished }) => isFinished)) return;
        this.#shrink(maxNewTokens - sampled);
      }
      const left = this.#unchecked.length === 0 ? checkInterval : checkInterval - unchecked;
      sampled += this.#advance(sampled, Math.min(left, maxNewTokens - sampled));
    }
  }

  /**
   * Samples further tokens of every row.
   *
   * @param sampled number of tokens sampled so far
   * @param most how many before the next check
   * @returns how many
   */
  #advance(sampled: number, most: number): number {
    const cache = this.batch.cache!;
    const state = { rows: this.#rows, forwarded: this.#forwarded, cache, next: this.#next! };
    if (this.#statics?.fit(state, most) !== true) {
      this.#leave();
      this.#forward();
      this.#sample(sampled);
      return 1;
    }
    const { sampling } = this.options;
    const draw = (at: number, step: number) =>
      keyedUniform(this.keys[this.#rows[at]!.row.index]!, sampled + step);
    const held = sampling.minNewTokens - sampled;
    const goesOn = this.#rows.map(({ isFinished }) => !isFinished);
    const count = this.#rows.length;
    scope(() => {
      const made = this.#statics!.run(most, Math.max(0, held), sampling.greedy ? null : draw, goesOn);
      const taken = (given: Tensor) => given.narrow(0, 0, most).narrow(1, 0, count);
      const tokens = (given: Tensor | null) => given && taken(given).squeeze(-1).t();
      const { ids, logprobs, behaviour } = made;
      this.#unchecked.push(
        keep({ ids: tokens(ids)!, logprobs: tokens(logprobs), behaviour: tokens(behaviour) }),
      );
      this.#remember(keep(taken(made.states).clone().unbind(0)));
    });
    this.#forwarded += most;
    this.#computed += this.#statics.width * most;
    return most;
  }

  /** Takes the rows out of the buffers of static steps. */
  #leave(): void {
    if (this.#statics === null || this.#statics.width === 0) return;
    this.#reserve(this.#forwarded);
    const left = this.#statics.leave(this.#forwarded, this.batch.cache!)!;
    dispose([this.#next, this.#seen, this.#positions]);
    this.#next = left.next;
    this.#seen = left.seen;
    this.#positions = null;
  }

  #remember(states: readonly Tensor[]): void {
    this.#history.push(...states);
    const most = this.#stops.reach + this.options.checkInterval;
    if (this.#history.length > most) dispose(this.#history.splice(0, this.#history.length - most));
  }

  dispose(): void {
    this.#view.dispose();
    dispose([this.#history, this.#seen, this.#next, this.#unchecked, this.#heldBack]);
    dispose([this.#positions, this.#uniforms]);
  }

  #makeView(): CacheView {
    const { model } = this.options;
    const rows = this.#rows.map(({ row }) => row);
    const share = (indices: readonly number[]) =>
      sharedColumns(
        indices.map((index) => rows[index]!),
        model.device,
      );
    // Only this kernel can use shared columns: see decodeAttention.
    const isShared = readsSharedColumns({ device: model.device, dtype: model.computeDtype });
    return new CacheView(
      this.batch.cache!,
      rows.map((row) => row.slot),
      isShared ? share : undefined,
    );
  }

  /** Samples token number `step` of every row. */
  #sample(step: number): void {
    const [next, seen, sampled] = scope(() => {
      const logits = this.options.model.logits(this.#history.at(-1)!);
      // Whatever makes later logits non-finite almost always makes the first ones so, too; otherwise sampling fails
      // there.
      if (step === 0) checkLogits(logits);
      try {
        const tokens = this.#draw(step, logits);
        return keep([
          tokens.ids.clone(),
          this.#seen === null ? null : cat([this.#seen, tokens.ids], 1),
          tokens,
        ] as const);
      } catch (error) {
        if (error instanceof TorchError) checkLogits(logits);
        throw error;
      }
    });
    dispose([this.#next, this.#seen]);
    this.#next = next;
    this.#seen = seen;
    this.#unchecked.push(sampled);
  }

  #draw(step: number, logits: Tensor): SampledTokens {
    const { sampling } = this.options;
    const { ids, behaviour } = drawTokens(logits, {
      sampling,
      seen: this.#seen,
      heldBack: step < sampling.minNewTokens ? this.#heldBack : null,
      uniforms: sampling.greedy ? null : this.#uniformsOf(step),
    });
    return { ids, logprobs: sampling.recordLogprobs ? sampledLogprobs(logits, ids) : null, behaviour };
  }

  /** float64 [n, 1]; those of all steps up to the next check are sent to the device at once. */
  #uniformsOf(step: number): Tensor {
    const rows = this.#rows.length;
    if (this.#uniforms === null || this.#uniforms.first + this.#uniforms.steps <= step) {
      const steps = Math.min(this.options.checkInterval, this.options.sampling.maxNewTokens - step);
      const values = new Float64Array(steps * rows);
      this.#rows.forEach(({ row }, at) => {
        const key = this.keys[row.index]!;
        for (let next = 0; next < steps; next += 1) values[next * rows + at] = keyedUniform(key, step + next);
      });
      this.#uniforms?.values.dispose();
      const { device } = this.options.model;
      const sent = keep(tensor(values, { dtype: "float64", shape: [steps, rows, 1], device }));
      this.#uniforms = { first: step, steps, values: sent };
    }
    const { first, steps, values } = this.#uniforms;
    return steps === 1 ? values.view([rows, 1]) : values.select(0, step - first);
  }

  /** Runs the model on the last sampled tokens. */
  #forward(): void {
    const { model } = this.options;
    const starts = this.#rows.map(({ start }) => start + this.#forwarded);
    this.#reserve(this.#forwarded + 1);
    this.#view.begin(
      starts,
      starts.map(() => 1),
      1,
    );
    const hidden = scope(() => {
      const positions = (this.#positions =
        this.#positions?.add_(1) ?? keep(idTensor(starts, model.device).view([starts.length, 1])));
      const states = model.forward(this.#next!, { positions, mask: null, cache: this.#view });
      return keep(states.reshape([states.size(0), states.size(-1)]));
    });
    this.#forwarded += 1;
    this.#computed += this.#rows.length;
    this.#remember([hidden]);
  }

  /** Processes the tokens sampled since the last check, and finishes rows. */
  #check(isLast: boolean): void {
    const count = this.#unchecked.reduce((sum, { ids }) => sum + ids.size(1), 0);
    /** By row, then by token; null if not recorded. */
    const read = (name: keyof SampledTokens): number[] | null => {
      const columns = this.#unchecked.flatMap((tokens) => tokens[name] ?? []);
      return columns.length === 0
        ? null
        : Array.from(
            scope(() => cat(columns, 1).toTypedArray()),
            Number,
          );
    };
    const [ids, logprobs, behaviour] = [read("ids")!, read("logprobs"), read("behaviour")];
    dispose(this.#unchecked);
    this.#unchecked = [];
    this.#rows.forEach((decoding, at) => {
      for (let token = at * count; token < (at + 1) * count && !decoding.isFinished; token += 1) {
        decoding.ids.push(ids[token]!);
        if (logprobs !== null) decoding.logprobs.push(logprobs[token]!);
        if (behaviour !== null) decoding.behaviour.push(behaviour[token]!);
        this.#checkEnd(decoding, at);
      }
      if (isLast && !decoding.isFinished) this.#finish(decoding, at, "length");
    });
  }

  /** Finishes a row if its last id ends the generation. */
  #checkEnd(decoding: Decoding, at: number): void {
    const { tokenizer, sampling } = this.options;
    const { ids } = decoding;
    const id = ids.at(-1)!;
    const reason = this.#ends.get(id);
    if (reason !== undefined) {
      // An end id without text (a special token) is not part of the conversation; one with text, such as "\n", is.
      const kept = ids.length - (decodeText(tokenizer, [id]) === "" ? 1 : 0);
      this.#finish(decoding, at, reason, { kept });
      return;
    }
    const cut = this.#stops.find(ids);
    if (cut !== null) this.#finish(decoding, at, "stop", sampling.keepStopString ? {} : { cut });
  }

  /**
   * Ends a row's generation.
   *
   * @param options.kept how many of its ids remain in the row; default: all
   * @param options.cut where a stop string truncates it; default: nowhere
   */
  #finish(
    decoding: Decoding,
    at: number,
    finished: FinishReason,
    { cut, kept = cut?.kept ?? decoding.ids.length }: { kept?: number; cut?: Cut } = {},
  ): void {
    const { row, ids: sampled } = decoding;
    const count = cut?.kept ?? sampled.length;
    const ids = sampled.slice(0, count);
    const logprobs = decoding.logprobs.slice(0, count);
    if (logprobs.some(Number.isNaN)) throw noFiniteLogits(NaN);
    const text = cut?.text ?? decodeText(this.options.tokenizer, ids);
    const behaviour = decoding.behaviour.slice(0, count);
    this.onFinish(row, { ids, text, logprobs, behaviour, finished, kept });
    decoding.isFinished = true;

    const forwarded = Math.min(kept, this.#forwarded);
    let cached = forwarded;
    // The hidden state after the row's last kept id is available only if that id was processed within the last few
    // steps.
    const state = this.#history[this.#history.length - 1 - (this.#forwarded - kept)];
    if (kept > 0 && state !== undefined) scope(() => this.batch.remember(row, state.narrow(0, at, 1)));
    else if (kept > 0 && kept <= this.#forwarded) cached = kept - 1; // the last id has to be processed again
    row.appendSampled(sampled.slice(0, kept), forwarded, cached);
    this.#useful += Math.min(sampled.length, this.#forwarded);
    this.batch.options.count({ tokensGenerated: sampled.length });
  }

  /** Makes room for `tokens` tokens of this generation; if the cache is full, it grows by more than needed. */
  #reserve(tokens: number): void {
    const cache = this.batch.cache!;
    const columns = cache.capacities();
    for (const { row, start } of this.#rows) columns[row.slot] = Math.max(columns[row.slot]!, start + tokens);
    cache.reserve(columns);
  }

  /** Removes finished rows from the batch if it pays. */
  #shrink(stepsToGo: number): void {
    const kept = [...this.#rows.keys()].filter((at) => !this.#rows[at]!.isFinished);
    const finished = this.#rows.length - kept.length;
    if (!this.options.compaction || stepsToGo < LEAST_STEPS_TO_SHRINK) return;
    if (finished < Math.max(1, this.#rows.length / 8)) return;
    if (this.#statics !== null && this.#statics.width > 0) {
      this.#reserve(this.#forwarded);
      this.#statics.shrink(kept, this.#forwarded, this.batch.cache!);
    }
    this.#rows = kept.map((at) => this.#rows[at]!);
    dispose([this.#positions, this.#uniforms]);
    this.#positions = null;
    this.#uniforms = null;
    this.#view.dispose();
    this.#view = this.#makeView();
    scope(() => {
      const index = idTensor(kept, this.options.model.device);
      const smaller = (old: Tensor) => {
        const chosen = keep(old.indexSelect(0, index));
        old.dispose();
        return chosen;
      };
      this.#history = this.#history.map(smaller);
      this.#next = smaller(this.#next!);
      this.#seen = this.#seen && smaller(this.#seen);
    });
  }
}
