import type { Device, DType, SharedColumns, Tensor } from "@astra-rl/torch";
import type { Adapter, Projection } from "./adapters/adapter.js";

/**
 * Interface of every causal language model in this package, and all that generation, log-probabilities and checkpoints
 * may use. families/decoder.ts implements it; no other code depends on a specific model.
 *
 * Shapes: B rows, T new tokens per row, S key columns that the new tokens may attend to (cached columns, then the new
 * tokens themselves), D hidden size, H heads, G key/value heads, E head size, V vocabulary.
 */
export interface CausalLM {
  readonly config: ModelConfig;
  /** Storage type of the parameters. */
  readonly dtype: DType;
  /** Type of the matrix products and of the results of `forward` and `logits`. Default: `dtype`. */
  readonly computeDtype: DType;
  readonly device: Device;
  /** The adapter of a view; null for other models. It is not among the parameters, so copying these omits it. */
  readonly adapter: Adapter | null;

  /** Parameters under their Hugging Face names, tied weights only once. The model owns them. */
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
   * An independent copy with parameters of the given type, without gradients; rollouts run on it. The caller owns it.
   *
   * @throws UsageError for a view
   */
  copy(dtype: DType): CausalLM;

  /**
   * Overwrites this model's parameters in place with those of a model of the same shapes (after an optimizer step).
   */
  copyFrom(model: CausalLM): void;

  /**
   * Brings up to date, in place, what was made of parameters before they changed. `forward` does so by itself; passes that are
   * repeated without running (`graph` of @astra-rl/torch) need it before them.
   */
  refresh(): void;

  /** The linear layers that an adapter may change, by their module name in the checkpoint. */
  projections(): Map<string, Projection>;

  /**
   * A view of this model with an adapter. It shares the parameters and must not outlive them. The model and
   * any number of views, each with its own adapter, can be used at the same time.
   *
   * @throws UsageError for a view: a second adapter would take the place of the first
   */
  withAdapter(adapter: Adapter): CausalLM;

  /** Frees the parameters. The model cannot be used afterwards. */
  dispose(): void;
}

export interface ForwardOptions {
  /** int64 [B, T]: position of each new token in its own sequence, starting at 0. */
  positions: Tensor;
  /**
   * bool [B or 1, 1, T, T], true = may attend; `null` = causal. A token that may attend to nothing gives
   * finite but meaningless values. Must be null with a cache, which determines what each row attends to.
   */
  mask: Tensor | null;
  /**
   * Packed sequences of different lengths in one row that do not attend to each other: B = 1, Σ length = T,
   * `mask` is null and there is no cache. No padding is needed.
   */
  segments?: readonly Segment[];
  /** Keys and values of earlier tokens; those of the new tokens are appended. Absent = nothing is cached. */
  cache?: AttentionCache;
  /**
   * int64 [N]: flat indices (b · T + t) of the tokens whose hidden states are returned, in this order. The
   * last layer skips everything after its attention for other tokens. Absent = all.
   */
  places?: Tensor;
  /**
   * Keeps only each layer's input for the backward pass, which then recomputes the layer: less memory for a
   * second forward pass, same gradients. CPU only; ignored without gradients or with a cache. Default false.
   */
  gradientCheckpointing?: boolean;
}

/** One of several sequences packed into a row. */
export interface Segment {
  length: number;
  /** bool [1, 1, length, length], true = may attend; `null` = causal. */
  mask: Tensor | null;
}

/**
 * The key/value cache as one forward pass sees it. If a row holds n columns, its new token t goes into column
 * n + t, which is also its position, and attends to all columns up to that one.
 */
export interface AttentionCache {
  /**
   * Appends one layer's keys and values of the new tokens, each [B, G, T, E].
   *
   * @returns the keys and values that this layer's queries attend to, for each run of adjacent rows in the batch
   */
  append(layer: number, key: Tensor, value: Tensor): readonly CachedRows[];
}

/** Adjacent rows of a batch whose keys and values share one buffer. */
export interface CachedRows {
  /** First row within the batch, and number of rows. */
  readonly first: number;
  readonly count: number;
  /** [R, G, C, E]: the whole buffer, which may also contain other rows. */
  readonly key: Tensor;
  readonly value: Tensor;
  /** Keys and values of just these rows, [count, G, S, E], with all columns that any of them may attend to. */
  rectangle(): [key: Tensor, value: Tensor];
  /**
   * bool [count or 1, 1, T, S]: which columns of `rectangle()` each new token may attend to.
   *
   * @param window number of last columns, including the token's own; null = all
   */
  mask(window: number | null): Tensor;
  /** int32 [count, 3], as decodeAttention takes them: for passes with one new token per row. */
  ranges(window: number | null): Tensor;
  /** Columns that several of these rows share with a common ancestor; null if unknown. */
  readonly shared: SharedColumns | null;
  /** A tensor shared by the layers of a pass: created once and kept until the pass ends. */
  once(name: string, make: () => Tensor): Tensor;
}

/** A model's configuration, with the same field names for all families. */
export interface ModelConfig {
  /** Class name in Hugging Face's `architectures`, for example "GPT2LMHeadModel". */
  readonly architecture: string;
  /** Hugging Face's `model_type`, for example "gpt2". */
  readonly modelType: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Less than `heads` if query heads share keys and values (grouped-query attention). */
  readonly keyValueHeads: number;
  readonly headDimension: number;
  /** Maximum tokens per row: positions run from 0 to contextLength − 1. */
  readonly contextLength: number;
  /** Whether the output projection is the input embedding. */
  readonly tiedEmbeddings: boolean;
  /** Number of last tokens that a token may attend to; `null` = all of them. */
  readonly slidingWindow: number | null;
  /** `null` if the configuration has none. */
  readonly bosId: number | null;
  /** Every id that ends a generation; empty if the configuration has none. */
  readonly eosIds: readonly number[];
  readonly padId: number | null;
  /** config.json as read, so that saving loses nothing. */
  readonly raw: Readonly<Record<string, unknown>>;
  /** generation_config.json as read; `null` if absent. `eosIds` already takes it into account. */
  readonly generation: Readonly<Record<string, unknown>> | null;
}
