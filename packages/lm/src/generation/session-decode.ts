import {
  cast,
  keep,
  NotFiniteError,
  TorchError,
  readsSharedColumns,
  scope,
  tensor,
  zeros,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM } from "../causal-lm.js";
import { CacheView } from "./cache-view.js";
import { decodeUtterance, StopDetector, type TokenDecoder } from "./stop.js";
import { keyedUniform, type DrawKey } from "./keyed-random.js";
import type { ResolvedSampling } from "./sampling.js";
import {
  candidateIds,
  drawCandidate,
  filterLogits,
  holdBack,
  idTensor,
  likeliest,
  penalizeRepetition,
  sampledLogprobs,
} from "./sampling-filters.js";
import type { RowBatch } from "./session-batch.js";
import type { SessionRow } from "./session-row.js";
import { sharedColumns } from "./shared-columns.js";

/** Columns reserved at once for a generation: enough for a short one; for a longer one the cache grows. */
export const RESERVED_COLUMNS = 128;
/** Compacting the batch copies rows; with fewer steps left it does not pay. */
const LEAST_STEPS_TO_SHRINK = 4;

export interface DecodeOptions {
  model: CausalLM;
  tokenizer: TokenDecoder;
  sampling: ResolvedSampling;
  /** Ids that end a generation with reason "eos". */
  endIds: readonly number[];
  /** Removes finished rows from the batch. */
  compaction: boolean;
  /**
   * Steps between checks of the sampled tokens. Above 1, the host does not wait for the device at every token; tokens
   * that a row computes past its end are discarded.
   */
  checkInterval: number;
}

/** Why a generation ended: an end id, a stop id or stop string, or maxNewTokens. */
export type FinishReason = "eos" | "stop" | "length";

export interface Utterance {
  ids: number[];
  text: string;
  /** Log-probability of each id under the full distribution; empty if not recorded. */
  logprobs: number[];
  /** Log-probability of each id under the distribution it was sampled from; empty if not recorded. */
  behaviour: number[];
  finished: FinishReason;
  /** How many of the ids stay in the row: all but a final end id without text. */
  kept: number;
}

/** A row that is being decoded. */
interface Speaker {
  row: SessionRow;
  /** Columns before the generation. */
  start: number;
  output: number[];
  isFinished: boolean;
}

/** Device tensors of the rows still being decoded; row i of each belongs to `#speakers[i]`. */
interface DecodeState {
  /** The last few hidden states [n, D], newest last: each after `tokens` sampled tokens. */
  history: { tokens: number; hidden: Tensor }[];
  /** int64 [n, longest context + maxNewTokens]: ids for the repetition penalty; null = no penalty. */
  seen: Tensor | null;
  /** float64 [n, maxNewTokens]; null = greedy. */
  uniforms: Tensor | null;
  /** int64 [n, maxNewTokens]. */
  sampled: Tensor;
  /** float32 [n, maxNewTokens]; null = not recorded. */
  logprobs: Tensor | null;
  behaviour: Tensor | null;
}

/**
 * Samples one continuation for every row of a batch without pending ids, and appends it to the row, except an end id
 * without text. The last id is then pending, unless it was cut off.
 */
export function decode(
  batch: RowBatch,
  keys: ReadonlyMap<SessionRow, DrawKey>,
  options: DecodeOptions,
): Map<SessionRow, Utterance> {
  const decoder = new Decoder(batch, keys, options);
  try {
    decoder.run();
    return decoder.utterances;
  } finally {
    decoder.dispose();
  }
}

class Decoder {
  readonly utterances = new Map<SessionRow, Utterance>();
  readonly #batch: RowBatch;
  readonly #options: DecodeOptions;
  readonly #stops: StopDetector;
  readonly #ends: Map<number, FinishReason>;
  readonly #endTensor: Tensor | null;
  /** Number of ids before the first sampled one in `seen`. */
  readonly #seenBefore: number;
  #state: DecodeState;
  /** Rows being computed, by slot; finished ones stay until the batch is compacted. */
  #speakers: Speaker[];
  #view: CacheView;
  /** Number of sampled tokens per row that went through the model. */
  #forwarded = 0;
  #computed = 0;
  #useful = 0;

  constructor(batch: RowBatch, keys: ReadonlyMap<SessionRow, DrawKey>, options: DecodeOptions) {
    const { model, sampling, endIds, tokenizer } = options;
    this.#batch = batch;
    this.#options = options;
    this.#stops = new StopDetector(tokenizer, sampling.stopStrings);
    this.#ends = new Map([
      ...sampling.stopIds.map((id) => [id, "stop"] as const),
      ...endIds.map((id) => [id, "eos"] as const),
    ]);
    const held = [...this.#ends.keys()].filter((id) => id < model.config.vocabSize);
    this.#endTensor =
      held.length > 0 && sampling.minNewTokens > 0 ? keep(idTensor(held, model.device)) : null;
    this.#seenBefore = batch.rows.reduce((most, row) => Math.max(most, row.ids.length), 0);
    this.#speakers = batch.rows.map((row) => ({ row, start: row.cached, output: [], isFinished: false }));
    this.#view = this.#viewOf(this.#speakers);
    this.#state = scope(() => keep(this.#initialState(keys)));
  }

  run(): void {
    const { sampling, checkInterval } = this.#options;
    const { maxNewTokens } = sampling;
    let looked = 0;
    for (let step = 0; step < maxNewTokens; step += 1) {
      scope(() => this.#sample(step));
      const last = step === maxNewTokens - 1;
      if (last || step + 1 - looked >= checkInterval) {
        this.#look(looked, step + 1, last);
        looked = step + 1;
        if (this.#speakers.every(({ isFinished }) => isFinished)) break;
        this.#shrink(maxNewTokens - 1 - step);
      }
      scope(() => this.#forward(step));
    }
    this.#batch.options.count({ tokensForwarded: this.#useful, tokensPadded: this.#computed - this.#useful });
  }

  dispose(): void {
    this.#view.dispose();
    for (const tensor of tensorsOf(this.#state)) tensor.dispose();
    this.#endTensor?.dispose();
  }

  #viewOf(speakers: readonly Speaker[]): CacheView {
    const { model } = this.#options;
    const rows = speakers.map(({ row }) => row);
    const share = (places: readonly number[]) =>
      sharedColumns(
        places.map((place) => rows[place]!),
        model.device,
      );
    const slots = rows.map((row) => row.slot);
    // Only this kernel can use shared columns: see decodeAttention.
    const isShared = readsSharedColumns({ device: model.device, dtype: model.computeDtype });
    return new CacheView(this.#batch.cache!, slots, isShared ? share : undefined);
  }

  #initialState(keys: ReadonlyMap<SessionRow, DrawKey>): DecodeState {
    const { sampling, model } = this.#options;
    const { maxNewTokens, greedy, repetitionPenalty, recordLogprobs, recordBehaviour } = sampling;
    const { rows, last } = this.#batch;
    const { device } = model;
    const count = rows.length;
    const record = (wanted: boolean) =>
      wanted ? zeros([count, maxNewTokens], { dtype: "float32", device }) : null;

    let seen: Tensor | null = null;
    if (repetitionPenalty !== 1) {
      const wide = this.#seenBefore + maxNewTokens;
      const ids = new Int32Array(count * wide);
      // Shorter rows are padded with their first id: repeats do not matter.
      rows.forEach((row, slot) =>
        ids.fill(row.ids[0]!, slot * wide, (slot + 1) * wide).set(row.ids, slot * wide),
      );
      seen = tensor(ids, { dtype: "int64", shape: [count, wide], device });
    }

    let uniforms: Tensor | null = null;
    if (!greedy) {
      const values = new Float64Array(count * maxNewTokens);
      rows.forEach((row, slot) => {
        const key = keys.get(row)!;
        for (let at = 0; at < maxNewTokens; at += 1) values[slot * maxNewTokens + at] = keyedUniform(key, at);
      });
      uniforms = tensor(values, { dtype: "float64", shape: [count, maxNewTokens], device });
    }

    return {
      history: [{ tokens: 0, hidden: last!.clone() }],
      seen,
      uniforms,
      sampled: zeros([count, maxNewTokens], { dtype: "int64", device }),
      logprobs: record(recordLogprobs),
      behaviour: record(recordBehaviour),
    };
  }

  /** Samples token number `step` of every row into `sampled`. */
  #sample(step: number): void {
    const logits = this.#options.model.logits(this.#state.history.at(-1)!.hidden);
    // Whatever makes later logits non-finite almost always makes the first ones so, too; otherwise sampling fails
    // there.
    if (step === 0) checkLogits(logits);
    try {
      this.#draw(step, logits);
    } catch (error) {
      if (error instanceof TorchError) checkLogits(logits);
      throw error;
    }
  }

  #draw(step: number, logits: Tensor): void {
    const { sampling } = this.#options;
    const { greedy, repetitionPenalty, minNewTokens } = sampling;
    const { seen, uniforms, sampled, logprobs, behaviour } = this.#state;
    let shaped = logits;
    if (seen !== null) {
      shaped = penalizeRepetition(
        cast(logits, "float32"),
        seen.narrow(1, 0, this.#seenBefore + step),
        repetitionPenalty,
      );
    }
    if (step < minNewTokens && this.#endTensor !== null) shaped = holdBack(shaped, this.#endTensor);
    let ids: Tensor;
    if (greedy) {
      // The choice is deterministic: its behaviour log-probability is 0, the initial value of `behaviour`.
      ids = likeliest(shaped).unsqueeze(1);
    } else {
      const candidates = filterLogits(shaped, sampling);
      const drawn = drawCandidate(candidates, uniforms!.narrow(1, step, 1));
      ids = candidateIds(candidates, drawn);
      behaviour?.narrow(1, step, 1).copy_(candidates.logprobs.gather(1, drawn));
    }
    sampled.narrow(1, step, 1).copy_(ids);
    logprobs?.narrow(1, step, 1).copy_(sampledLogprobs(logits, ids));
    seen?.narrow(1, this.#seenBefore + step, 1).copy_(ids);
  }

  /** Runs the model on the last sampled tokens. */
  #forward(step: number): void {
    const { model, checkInterval } = this.#options;
    const { history, sampled } = this.#state;
    const starts = this.#speakers.map(({ start }) => start + this.#forwarded);
    this.#reserve(this.#forwarded + 1);
    this.#view.begin(
      starts,
      starts.map(() => 1),
      1,
    );
    // A token's position equals its column.
    const positions = idTensor(starts, model.device).view([starts.length, 1]);
    const hidden = model.forward(sampled.narrow(1, step, 1), { positions, mask: null, cache: this.#view });
    this.#forwarded += 1;
    this.#computed += this.#speakers.length;
    history.push({
      tokens: this.#forwarded,
      hidden: keep(hidden.reshape([hidden.size(0), hidden.size(-1)])),
    });
    if (history.length > this.#stops.reach + checkInterval) history.shift()!.hidden.dispose();
  }

  /** Processes the tokens `from` … `to` − 1, sampled since the last check, and finishes rows. */
  #look(from: number, to: number, last: boolean): void {
    const count = to - from;
    const block = scope(() => this.#state.sampled.narrow(1, from, count).toTypedArray());
    this.#speakers.forEach((speaker, slot) => {
      if (speaker.isFinished) return;
      for (let at = 0; at < count; at += 1) {
        if (this.#hear(speaker, slot, Number(block[slot * count + at]))) return;
      }
      if (last) this.#finish(speaker, slot, "length", speaker.output.length);
    });
  }

  /** Processes one sampled id; true if it ended the generation. */
  #hear(speaker: Speaker, slot: number, id: number): boolean {
    const { tokenizer, sampling } = this.#options;
    const { output } = speaker;
    output.push(id);
    const reason = this.#ends.get(id);
    if (reason !== undefined) {
      // An end id without text (a special token) is not part of the conversation; one with text, such as "\n", is.
      const silent = decodeUtterance(tokenizer, [id]) === "";
      this.#finish(speaker, slot, reason, output.length - (silent ? 1 : 0));
      return true;
    }
    const cut = this.#stops.find(output);
    if (cut === null) return false;
    if (sampling.keepStopString) this.#finish(speaker, slot, "stop", output.length);
    else this.#finish(speaker, slot, "stop", cut.kept, cut);
    return true;
  }

  /**
   * Ends a row's generation.
   *
   * @param staying how many of its ids remain in the row
   * @param cut where a stop string truncates it; absent = all its ids are kept
   */
  #finish(
    speaker: Speaker,
    slot: number,
    finished: FinishReason,
    staying: number,
    cut?: { kept: number; text: string },
  ): void {
    const { row, output } = speaker;
    const { history, logprobs, behaviour } = this.#state;
    const count = cut?.kept ?? output.length;
    const ids = output.slice(0, count);
    const read = (record: Tensor | null) =>
      record === null || count === 0
        ? []
        : Array.from(
            scope(() => record.narrow(0, slot, 1).narrow(1, 0, count).toTypedArray()),
            Number,
          );
    const utterance: Utterance = {
      ids,
      text: cut?.text ?? decodeUtterance(this.#options.tokenizer, ids),
      logprobs: read(logprobs),
      behaviour: read(behaviour),
      finished,
      kept: staying,
    };
    if (utterance.logprobs.some(Number.isNaN)) throw noFiniteLogits(NaN);
    this.utterances.set(row, utterance);
    speaker.isFinished = true;

    // The hidden state after the row's last kept id is available only if that id was processed within the last few
    // steps.
    let cached = Math.min(staying, this.#forwarded);
    const state = history.find(({ tokens }) => tokens === staying);
    if (state !== undefined && staying > 0) {
      scope(() => this.#batch.remember(row, state.hidden.narrow(0, slot, 1)));
    } else if (staying > 0 && staying <= this.#forwarded) {
      cached = staying - 1; // no longer available: the last id has to be processed again
    }
    row.say(output.slice(0, staying), Math.min(staying, this.#forwarded), cached);
    this.#useful += Math.min(output.length, this.#forwarded);
    this.#batch.options.count({ tokensGenerated: output.length });
  }

  /** Makes room for `tokens` tokens of this generation; if the cache is full, it grows by more than needed. */
  #reserve(tokens: number): void {
    const cache = this.#batch.cache!;
    const capacities = cache.capacities();
    if (this.#speakers.every(({ row, start }) => start + tokens <= capacities[row.slot]!)) return;
    for (const { row, start } of this.#speakers) {
      capacities[row.slot] = Math.max(capacities[row.slot]!, start + tokens);
    }
    cache.reserve(capacities);
  }

  /** Removes finished rows from the batch if it pays. */
  #shrink(stepsToGo: number): void {
    const kept = this.#speakers.flatMap(({ isFinished }, slot) => (isFinished ? [] : [slot]));
    const finished = this.#speakers.length - kept.length;
    if (!this.#options.compaction || stepsToGo < LEAST_STEPS_TO_SHRINK) return;
    if (finished < Math.max(1, this.#speakers.length / 8)) return;
    const speakers = kept.map((from) => this.#speakers[from]!);
    this.#speakers = speakers;
    this.#view.dispose();
    this.#view = this.#viewOf(speakers);
    const index = idTensor(kept, this.#options.model.device);
    try {
      this.#state = replaceTensors(this.#state, (old) => {
        const smaller = keep(old.indexSelect(0, index));
        old.dispose();
        return smaller;
      });
    } finally {
      index.dispose();
    }
  }
}

function tensorsOf(state: DecodeState): Tensor[] {
  const tensors: Tensor[] = [];
  replaceTensors(state, (each) => {
    tensors.push(each);
    return each;
  });
  return tensors;
}

function replaceTensors(state: DecodeState, replace: (old: Tensor) => Tensor): DecodeState {
  const optional = (old: Tensor | null) => (old === null ? null : replace(old));
  return {
    history: state.history.map(({ tokens, hidden }) => ({ tokens, hidden: replace(hidden) })),
    seen: optional(state.seen),
    uniforms: optional(state.uniforms),
    sampled: replace(state.sampled),
    logprobs: optional(state.logprobs),
    behaviour: optional(state.behaviour),
  };
}

/** @throws NotFiniteError if a logit is NaN or +∞, so that nothing can be sampled */
function checkLogits(logits: Tensor): void {
  const greatest = logits.max().item();
  if (!Number.isFinite(greatest)) throw noFiniteLogits(greatest);
}

const noFiniteLogits = (greatest: number) =>
  new NotFiniteError(
    `the model gives no finite logits (${greatest}): its weights are damaged, or training has made them diverge`,
  );
