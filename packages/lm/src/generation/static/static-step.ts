import {
  dispose,
  graph,
  keep,
  ones,
  scope,
  tensor,
  where,
  zeros,
  type DType,
  type Graph,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM } from "../../causal-lm.js";
import { idTensor } from "../../token-ids.js";
import { drawTokens } from "../draw-tokens.js";
import type { ResolvedSampling } from "../sampling.js";
import { sampledLogprobs } from "../sampling-filters.js";
import type { Bucket } from "./buckets.js";
import { StaticCache, type StaticBuffers } from "./static-cache.js";

/** What is decided on the host once for all steps of a generation. */
export interface StepSettings {
  readonly sampling: ResolvedSampling;
  /** Ids that end a generation, within the vocabulary. */
  readonly ends: readonly number[];
  /** Steps between checks of the sampled tokens. */
  readonly interval: number;
}

/** What steps since the last check computed, by step; each tensor belongs to the step, and the next ones overwrite it. */
export interface SteppedTokens {
  /** int64 [steps, rows, 1] */
  ids: Tensor;
  /** float32 [steps, rows, 1]; null = not recorded. */
  logprobs: Tensor | null;
  behaviour: Tensor | null;
  /** Hidden state after each token before it, [steps, rows, D]. */
  states: Tensor;
}

/** A graph makes so many passes before the first that counts. */
const LEAST_SLOTS = 4;

/**
 * One token for each row of a bucket: the model on the last sampled ids, then the next ids. Everything that changes from step
 * to step is in buffers on the device, and the step itself moves them on, so that the same calls serve every step: see
 * `graph` of @astra-rl/torch.
 */
export class StaticStep {
  readonly cache: StaticCache;
  /** int64 [rows, 1]: the last sampled ids, which the model has not processed. */
  readonly next: Tensor;
  /** int64 [rows, 1]: the column of each row's next token, which is its position, too. */
  readonly positions: Tensor;
  /** int64 [rows, capacity + 1]: the ids of each row by position, for the repetition penalty; null = no penalty. */
  readonly seen: Tensor | null;
  /** int64 [rows, 1]: 1 = the row goes on; others stay at their column, and compute what nobody reads. */
  readonly #alive: Tensor;
  /** int64 [1]: how many steps there were since the last check. */
  readonly #step: Tensor;
  /** float64 [slots + 1, rows, 1]: random numbers of each step; at last, which rows go on. */
  readonly #drawn: Tensor;
  readonly #tokens: SteppedTokens;
  /** int64 [V]: 0 for ids that end a generation; null = none does. */
  readonly #goesOn: Tensor | null;
  /** int64 [n]: ids that may not be sampled at first. */
  readonly #heldBack: Tensor | null;
  readonly #slots: number;
  readonly #graphs = new Map<boolean, Graph<unknown>>();

  constructor(
    private readonly model: CausalLM,
    readonly bucket: Bucket,
    buffers: StaticBuffers,
    private readonly settings: StepSettings,
    private readonly warn: (message: string) => void,
  ) {
    const { device, config, computeDtype } = model;
    const { rows, capacity } = bucket;
    const { sampling, ends, interval } = settings;
    const made = (shape: readonly number[], dtype: DType) => keep(zeros(shape, { dtype, device }));
    this.#slots = Math.max(interval, LEAST_SLOTS);
    this.next = made([rows, 1], "int64");
    this.positions = made([rows, 1], "int64");
    this.seen = sampling.repetitionPenalty === 1 ? null : made([rows, capacity + 1], "int64");
    this.#alive = made([rows, 1], "int64");
    this.#step = made([1], "int64");
    this.#drawn = made([this.#slots + 1, rows, 1], "float64");
    const figures = (isRecorded: boolean) => (isRecorded ? made([this.#slots, rows, 1], "float32") : null);
    this.#tokens = {
      ids: made([this.#slots, rows, 1], "int64"),
      logprobs: figures(sampling.recordLogprobs),
      behaviour: figures(sampling.recordBehaviour),
      states: made([this.#slots, rows, config.hiddenSize], computeDtype),
    };
    const ended = ends.length === 0 ? null : keep(idTensor(ends, device));
    this.#goesOn =
      ended && keep(scope(() => ones([config.vocabSize], { dtype: "int64", device }).indexFill(0, ended, 0)));
    this.#heldBack = ended;
    this.cache = new StaticCache(buffers, this.positions);
  }

  /** Makes the step's graphs. Of what rows hold, it writes to the last column only, which no text has reached yet. */
  prepare(): void {
    const last = Math.min(this.bucket.capacity, this.model.config.contextLength) - 1;
    const { minNewTokens } = this.settings.sampling;
    const kinds = minNewTokens > 0 && this.#heldBack !== null ? [true, false] : [false];
    for (const isHeldBack of kinds) {
      if (this.#graphs.has(isHeldBack)) continue;
      scope(() => {
        this.#alive.zero_();
        this.#step.zero_();
        this.next.zero_();
        this.positions.fill_(last);
      });
      this.#graphs.set(isHeldBack, this.#graph(isHeldBack));
    }
  }

  /**
   * So many steps, at most as many as there are between two checks.
   *
   * @param held number of the first steps in which no id that ends a generation may be sampled
   * @param draw the random number of a row in a step; null for greedy decoding
   * @param goesOn by row, whether it is still to be continued
   */
  run(
    count: number,
    held: number,
    draw: ((row: number, step: number) => number) | null,
    goesOn: readonly boolean[],
  ): SteppedTokens {
    const { rows } = this.bucket;
    const given = new Float64Array((this.#slots + 1) * rows);
    goesOn.forEach((isAlive, row) => {
      if (isAlive) given[this.#slots * rows + row] = 1;
      if (draw === null) return;
      for (let step = 0; step < count; step += 1) given[step * rows + row] = draw(row, step);
    });
    scope(() => {
      const { device } = this.model;
      this.#drawn.copy_(tensor(given, { shape: [this.#slots + 1, rows, 1], device }));
      this.#alive.copy_(this.#drawn.select(0, this.#slots));
      // Rows that have ended write to their first column, which is not read again, and do not reach the last one.
      this.positions.mul_(this.#alive);
      this.#step.zero_();
    });
    this.model.refresh();
    const first = this.#heldBack === null ? 0 : Math.min(count, held);
    if (first > 0) this.#graphs.get(true)!.replay(first);
    if (first < count) this.#graphs.get(false)!.replay(count - first);
    return this.#tokens;
  }

  dispose(): void {
    for (const each of this.#graphs.values()) each.dispose();
    this.cache.dispose();
    dispose([this.next, this.positions, this.seen, this.#alive, this.#step, this.#drawn]);
    dispose([this.#tokens, this.#goesOn, this.#heldBack]);
  }

  #graph(isHeldBack: boolean): Graph<unknown> {
    const { model, cache, warn } = this;
    const { sampling } = this.settings;
    const { keys, values } = cache.buffers;
    const inputs = {
      ...this.#tokens,
      next: this.next,
      positions: this.positions,
      seen: this.seen,
      alive: this.#alive,
      step: this.#step,
      drawn: this.#drawn,
      keys,
      values,
    };
    const pass = ({
      next,
      positions,
      seen,
      alive,
      step,
      drawn,
      ids,
      logprobs,
      behaviour,
      states,
    }: typeof inputs) => {
      const { rows } = this.bucket;
      const put = (to: Tensor | null, from: Tensor) => to?.indexCopy_(0, step, from.unsqueeze(0));
      const hidden = cache
        .during(() => model.forward(next, { positions, mask: null, cache }))
        .reshape([rows, -1]);
      put(states, hidden);
      const logits = model.logits(hidden);
      const sampled = drawTokens(logits, {
        sampling,
        seen,
        heldBack: isHeldBack ? this.#heldBack : null,
        uniforms: sampling.greedy ? null : drawn.indexSelect(0, step).view([rows, 1]),
      });
      put(ids, sampled.ids);
      if (logprobs !== null) put(logprobs, sampledLogprobs(logits, sampled.ids));
      if (sampled.behaviour !== null) put(behaviour, sampled.behaviour);
      // A row that has ended stays at its end: the keys and values of that id are written again.
      next.copy_(where(alive.ne(0), sampled.ids, next));
      positions.add_(alive);
      seen?.scatter_(1, positions, next);
      if (this.#goesOn !== null) alive.mul_(this.#goesOn.indexSelect(0, next.view([rows])).view([rows, 1]));
      step.add_(1);
    };
    const constants = () => [
      ...model.namedParameters().values(),
      ...(model.adapter?.namedParameters().values() ?? []),
    ];
    return graph(pass, inputs, { warn, constants });
  }
}
