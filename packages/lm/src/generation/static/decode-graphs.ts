import { UsageError } from "@astra-rl/base";
import { dispose, isLoopable, keep } from "@astra-rl/torch";
import type { CausalLM } from "../../causal-lm.js";
import { WHOLE_TABLE } from "../../families/rotary.js";
import { cacheShape } from "../key-value-cache.js";
import type { Bucket } from "./buckets.js";
import { makeBuffers, type StaticBuffers } from "./static-cache.js";
import { StaticStep, type StepSettings } from "./static-step.js";

/** Steps that are kept: enough for the buckets of two samplings. */
const MOST_STEPS = 120;

/**
 * The static steps of one model: made when a generation needs them, and kept until `dispose`, since making one takes as long
 * as several tokens. Their keys and values are in one set of buffers for each capacity, of which steps of fewer rows use a
 * part.
 *
 * Sessions of the model are given it (`SessionOptions.graphs`). It must be disposed of before the model.
 */
export class DecodeGraphs {
  readonly #buffers = new Map<number, { rows: number; whole: StaticBuffers }>();
  /** By bucket and settings, the last used last. */
  readonly #steps = new Map<string, { step: StaticStep; views: readonly unknown[] }>();
  #hasWarned = false;

  /**
   * @param options.log called once, where a GPU cannot repeat the steps as a whole
   * @throws UsageError for a model on a device that has kernels of ours, which are faster
   */
  constructor(
    readonly model: CausalLM,
    private readonly options: { log?: (message: string) => void } = {},
  ) {
    if (DecodeGraphs.fit(model)) return;
    throw new UsageError(
      "graphs-unavailable",
      `DecodeGraphs: models on ${model.device} in ${model.computeDtype} are decoded without graphs; leave them out`,
    );
  }

  /** Whether a model can be decoded by static steps. */
  static fit({ device, computeDtype, config }: CausalLM): boolean {
    // Larger tables of rotary positions grow with the texts.
    return !isLoopable({ device, dtype: computeDtype }) && config.contextLength <= WHOLE_TABLE;
  }

  /** The step for a bucket, ready. What rows of the same capacity hold stays, except in the last column. */
  step(bucket: Bucket, settings: StepSettings): StaticStep {
    const { maxNewTokens: _, stopStrings: __, keepStopString: ___, ...sampling } = settings.sampling;
    const minNewTokens = Math.min(1, sampling.minNewTokens);
    const training = this.model.adapter?.training ?? false;
    const key = JSON.stringify([
      bucket,
      settings.interval,
      settings.ends,
      { ...sampling, minNewTokens },
      training,
    ]);
    const known = this.#steps.get(key);
    this.#steps.delete(key);
    const entry = known ?? this.#make(bucket, settings);
    this.#steps.set(key, entry);
    if (this.#steps.size > MOST_STEPS) this.#forget(this.#steps.keys().next().value!);
    return entry.step;
  }

  dispose(): void {
    for (const key of this.#steps.keys()) this.#forget(key);
    for (const { whole } of this.#buffers.values()) dispose(whole);
    this.#buffers.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #make(bucket: Bucket, settings: StepSettings): { step: StaticStep; views: readonly unknown[] } {
    const whole = this.#buffersOf(bucket);
    const part = keep({
      keys: whole.keys.map((each) => each.narrow(0, 0, bucket.rows)),
      values: whole.values.map((each) => each.narrow(0, 0, bucket.rows)),
    });
    const warn = (message: string) => {
      if (!this.#hasWarned) this.options.log?.(message);
      this.#hasWarned = true;
    };
    const step = new StaticStep(this.model, bucket, part, settings, warn);
    const entry = { step, views: [part] };
    try {
      step.prepare();
      return entry;
    } catch (error) {
      step.dispose();
      dispose(part);
      throw error;
    }
  }

  #buffersOf(bucket: Bucket): StaticBuffers {
    const known = this.#buffers.get(bucket.capacity);
    if (known !== undefined && known.rows >= bucket.rows) return known.whole;
    for (const [key, { step }] of this.#steps)
      if (step.bucket.capacity === bucket.capacity) this.#forget(key);
    dispose(known?.whole);
    const whole = makeBuffers(cacheShape(this.model), bucket);
    this.#buffers.set(bucket.capacity, { rows: bucket.rows, whole });
    return whole;
  }

  #forget(key: string): void {
    const { step, views } = this.#steps.get(key)!;
    step.dispose();
    dispose(views);
    this.#steps.delete(key);
  }
}
