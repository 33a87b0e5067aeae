import type { Device, DType, SharedColumns, Tensor } from "@astra-rl/torch";
import type { Adapter, Projection } from "./adapter.js";

/**
 * What every causal language model of this package offers, and all that generation, log-probabilities and
 * checkpoints may ask of one. A family file (families/gpt2.ts, …) implements it; nothing else knows a model by name.
 *
 * Shapes: B rows, T new tokens in each, S key columns that the new tokens may look at (cached columns, then the
 * new tokens themselves), D hidden size, H key/value heads, E size of one head, V vocabulary.
 */
export interface CausalLM {
  readonly config: ModelConfig;
  /** Storage type of the parameters. */
  readonly dtype: DType;
  /** Type of the matrix products and of what `forward` and `logits` return; equal to `dtype` unless chosen. */
  readonly computeDtype: DType;
  readonly device: Device;

  /** Parameters under their Hugging Face names, tied weights once. The model owns them. */
  namedParameters(): Map<string, Tensor>;

  /**
   * Hidden states of the new tokens, after the final norm.
   *
   * @param ids int64 [B, T]
   * @returns computeDtype [B, T, D]; with `places` [1, N, D]
   */
  forward(ids: Tensor, options: ForwardOptions): Tensor;

  /** Next-token logits of hidden states: computeDtype [..., D] → computeDtype [..., V]. */
  logits(hidden: Tensor): Tensor;

  /**
   * An independent copy with parameters of the given type, without gradients: what rollouts run on. The caller owns it.
   */
  copy(dtype: DType): CausalLM;

  /** Overwrites this model's parameters, in place, with another's of the same shapes (after an optimizer step). */
  copyFrom(model: CausalLM): void;

  /** The linear maps that an adapter may change, by the name of their module in the checkpoint. */
  projections(): Map<string, Projection>;

  /**
   * This model with an adapter: a view that shares the parameters and must not outlive them. Several views of one
   * model, each with its own adapter, and the model itself can be used side by side.
   */
  withAdapter(adapter: Adapter): CausalLM;

  /** Frees the parameters. The model is of no use afterwards. */
  dispose(): void;
}

export interface ForwardOptions {
  /** int64 [B, T]: position of each new token in its own text, 0 for the first. */
  positions: Tensor;
  /**
   * bool [B or 1, 1, T, T], true = may attend; `null` = causal. A token that may attend to nothing gives finite values
   * without meaning. With a cache it is null: the cache says what each row sees.
   */
  mask: Tensor | null;
  /**
   * Texts of different lengths that lie end to end in one row and do not see each other: B = 1, Σ length = T, `mask` is
   * null and there is no cache. Nothing is padded.
   */
  segments?: readonly Segment[];
  /** Keys and values of earlier tokens; the new tokens' are added to them. Absent = nothing is kept. */
  cache?: AttentionCache;
  /**
   * int64 [N]: the tokens whose hidden states are wanted, counted through the rows (b · T + t), in the order of the result.
   * Behind its attention the last layer computes nothing for the others. Absent = all.
   */
  places?: Tensor;
  /**
   * Keeps only each layer's input for the backward pass, which computes the layer once more: less memory for a second
   * forward pass, with the same gradients. On the CPU only; of no effect without gradients or with a cache.
   * Default false.
   */
  gradientCheckpointing?: boolean;
}

/** One of several texts in a row. */
export interface Segment {
  length: number;
  /** bool [1, 1, length, length], true = may attend; `null` = causal. */
  mask: Tensor | null;
}

/**
 * One forward pass over rows of a key/value cache, as a model sees it. New token t of a row lies in the column after all
 * that the row holds and t more, which is also its position, and sees the columns up to its own.
 */
export interface AttentionCache {
  /**
   * Adds one layer's keys and values of the new tokens, each [B, G, T, E].
   *
   * @returns what that layer's queries attend to: for each run of neighbouring rows of the batch
   */
  append(layer: number, key: Tensor, value: Tensor): readonly CachedRows[];
}

/** Neighbouring rows of a batch whose keys and values lie in one place. */
export interface CachedRows {
  /** First row of the batch, and how many follow it. */
  readonly first: number;
  readonly count: number;
  /** [R, G, C, E]: these rows and others. */
  readonly key: Tensor;
  readonly value: Tensor;
  /** The same as [count, G, S, E], with all columns that any of these rows may see. */
  rectangle(): [key: Tensor, value: Tensor];
  /**
   * bool [count or 1, 1, T, S]: what each new token may see of the rectangle.
   *
   * @param window so many columns back, the token's own included; null = all
   */
  mask(window: number | null): Tensor;
  /** int32 [count, 3], as decodeAttention takes them: for passes over one new token. */
  ranges(window: number | null): Tensor;
  /** Columns that several of these rows have from one ancestor; null where nothing is known. */
  readonly shared: SharedColumns | null;
  /** What the layers of a pass share: made once, and kept until the pass is over. */
  once(name: string, make: () => Tensor): Tensor;
}

/** What is known of a model without its weights; the same names for all families. */
export interface ModelConfig {
  /** Class name in Hugging Face's `architectures`, for example "GPT2LMHeadModel". */
  readonly architecture: string;
  /** Hugging Face's `model_type`, for example "gpt2". */
  readonly modelType: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Fewer than `heads` where query heads share keys and values. */
  readonly keyValueHeads: number;
  readonly headDimension: number;
  /** The most tokens that one row may hold: positions run from 0 to contextLength − 1. */
  readonly contextLength: number;
  /** Last tokens back that a token may attend to; `null` = all of them. */
  readonly slidingWindow: number | null;
  /** `null` where the configuration names none. */
  readonly bosId: number | null;
  /** Every id that ends an utterance; empty where the configuration names none. */
  readonly eosIds: readonly number[];
  readonly padId: number | null;
  /** config.json as it was read, so that saving loses nothing. */
  readonly raw: Readonly<Record<string, unknown>>;
  /** generation_config.json as it was read; `null` where there is none. `eosIds` already heeds it. */
  readonly generation: Readonly<Record<string, unknown>> | null;
}
