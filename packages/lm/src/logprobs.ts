import {
  cat,
  checkpoint,
  describeValue,
  isGradEnabled,
  scope,
  selectiveLogSoftmax,
  selectiveLogSoftmaxWithEntropy,
  tensor,
  UsageError,
  zeros,
  type Tensor,
} from "@astra-rl/torch";
import type { CausalLM, ModelConfig } from "./causal-lm.js";
import { ancestorMask, buildTries, isChain, type PrefixTrie } from "./prefix-trie.js";

/** A continuation to be scored, and what comes before it. Token ids. */
export interface ScoredRow {
  readonly context: readonly number[];
  readonly continuation: readonly number[];
  /** So many leading ids of the context stay when it is cut from the left. Default 0. */
  readonly pinned?: number;
}

export interface TokenLogprobsOptions {
  /**
   * Reads beginnings that rows share once, as a tree with an ancestor mask. The numbers and the gradients are those of
   * rows read one by one; only the work differs. Default true.
   */
  packed?: boolean;
  /** Most tokens in one forward pass; more rows mean more passes. A single row is always read whole. Default 2048. */
  tokenBudget?: number;
  /** Where given, the work done is added to it. */
  counters?: ReadCounters;
  /**
   * Keeps only what lies between layers for the backward pass, which computes the layers and the log-probabilities once
   * more: less memory for a second forward pass, with the same gradients. On the CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
}

export interface ReadCounters {
  /** Tokens given to the model, each counted as often as it was read. */
  tokensRead: number;
}

/** One number for each of n hidden states, [n, D] → [n]: what a head on top of the model makes of them. */
export type ReadHead = (states: Tensor) => Tensor;

export interface TokenOutputsOptions extends TokenLogprobsOptions {
  /** Whether the entropy of the distributions is wanted. Default false. */
  entropy?: boolean;
  /** Reads the hidden state, after the final norm, behind which each continuation token comes. Default: none. */
  head?: ReadHead;
}

/** What one pass says of every continuation token: each [B, T], aligned as in `tokenLogprobs`, 0 beyond each row. */
export interface TokenOutputs {
  /** See `tokenLogprobs`. */
  logprobs: Tensor;
  /**
   * Where asked for: entropy of the whole distribution that the token was one draw of, in nats, at temperature 1 and
   * without any filter of sampling; differentiable as `logprobs` are.
   */
  entropy?: Tensor;
  /** Where there is a head: what it says of the state in which the token is chosen, before the token is known. */
  head?: Tensor;
}

/**
 * log P of every continuation token, given all tokens before it.
 *
 * A context is cut from the left, behind its pinned ids, so that it fits the model's window together with its
 * continuation; an empty context is stood in for by the beginning-of-text token (the end-of-text token where there is
 * none). An empty continuation is legal: a row of zeros. Logits are computed at scored positions only, and log-probabilities in float32.
 *
 * @returns float32 (float64 for a float64 model) [B, T], T the longest continuation, aligned to the continuation's
 * tokens and 0 beyond each row's length; differentiable with respect to the model's parameters where gradients are on
 * @throws UsageError for ids outside the vocabulary, and for a continuation that leaves no room in the window for what
 * is pinned, or for even one token of context: cutting it would score something else than was asked for
 */
export function tokenLogprobs(
  model: CausalLM,
  rows: readonly ScoredRow[],
  options: TokenLogprobsOptions = {},
): Tensor {
  return tokenOutputs(model, rows, options).logprobs;
}

/**
 * `tokenLogprobs`, and from the same pass the entropy of each token's distribution and what a head reads of the hidden
 * states. A state that rows share is read once. Log-probabilities are the same to the bit, whatever else is wanted.
 *
 * @throws UsageError as `tokenLogprobs` does
 */
export function tokenOutputs(
  model: CausalLM,
  rows: readonly ScoredRow[],
  options: TokenOutputsOptions = {},
): TokenOutputs {
  const { packed = true, tokenBudget = 2048, counters, head, entropy = false } = options;
  const { gradientCheckpointing = false } = options;
  const sequences = new Map<number, readonly number[]>();
  rows.forEach((row, index) => {
    if (row.continuation.length === 0) return;
    const context = contextThatFits(model.config, row, `tokenLogprobs: row ${index}`);
    // The last token is predicted but never read.
    sequences.set(index, [...context, ...row.continuation.slice(0, -1)]);
  });
  const longest = Math.max(0, ...rows.map((row) => row.continuation.length));
  const dtype = model.computeDtype === "float64" ? "float64" : "float32";

  return scope(() => {
    const parts: TokenOutputs[] = [];
    // Where each [row, k] of a result lies in the parts put together; what stays −1 is beyond its row's length.
    const place = new Int32Array(rows.length * longest).fill(-1);
    let placed = 0;
    for (const batch of makeBatches(buildTries(sequences, { merge: packed, tokenBudget }), tokenBudget)) {
      const scored = findScored(batch, rows);
      const reading = { dtype, gradientCheckpointing, entropy, head } as const;
      parts.push(scope(() => scoreBatch(model, batch, scored, reading)));
      for (const { row, k } of scored.targets) place[row * longest + k] = placed++;
      if (counters !== undefined) counters.tokensRead += batch.tokens;
    }
    const padding = zeros([1], { dtype, device: model.device });
    const index = ids(
      place.map((where) => (where < 0 ? placed : where)),
      model.device,
    );
    const table = (name: keyof TokenOutputs) =>
      cat([...parts.map((part) => part[name]!), padding], 0)
        .indexSelect(0, index)
        .view([rows.length, longest]);
    return {
      logprobs: table("logprobs"),
      ...(entropy ? { entropy: table("entropy") } : {}),
      ...(head === undefined ? {} : { head: table("head") }),
    };
  });
}

/**
 * The context that is really read before a row's continuation: cut from the left, behind its pinned ids, so that both
 * fit the model's window, and never empty.
 *
 * @param where begins every message
 * @throws UsageError for ids outside the vocabulary, a continuation that leaves no room for a context, and an empty
 * context of a model that has no token to stand in for it
 */
export function contextThatFits(
  config: ModelConfig,
  row: ScoredRow,
  where = "contextThatFits",
): readonly number[] {
  const { context, continuation } = row;
  for (const id of [...context, ...continuation]) {
    if (Number.isSafeInteger(id) && id >= 0 && id < config.vocabSize) continue;
    throw new UsageError(
      `${where}: token ids must be integers from 0 to ${config.vocabSize - 1}, got ${describeValue(id)}`,
    );
  }
  const pinned = Math.min(row.pinned ?? 0, context.length);
  if (!Number.isSafeInteger(pinned) || pinned < 0) {
    throw new UsageError(
      `${where}: pinned must be a whole number of at least 0, got ${describeValue(row.pinned)}`,
    );
  }
  const room = config.contextLength - continuation.length;
  if (room < Math.max(1, pinned)) {
    const least = pinned > 1 ? `the ${pinned} pinned tokens` : "one token";
    throw new UsageError(
      `${where}: the continuation and ${least} of context must fit the model's window of ` +
        `${config.contextLength} tokens, but the continuation has ${continuation.length}`,
    );
  }
  if (context.length > room) {
    return [...context.slice(0, pinned), ...context.slice(context.length - (room - pinned))];
  }
  if (context.length > 0) return context;
  const standIn = config.bosId ?? config.eosIds[0];
  if (standIn === undefined) {
    throw new UsageError(
      `${where}: an empty context needs a beginning- or end-of-text token to stand in for it, ` +
        `but the model's configuration names neither`,
    );
  }
  return [standIn];
}

/** Tries that are read in one forward pass, end to end. */
interface Batch {
  tries: PrefixTrie[];
  tokens: number;
}

function makeBatches(tries: readonly PrefixTrie[], tokenBudget: number): Batch[] {
  const batches: Batch[] = [];
  for (const trie of tries) {
    const batch = batches.at(-1);
    const { length } = trie.tokens;
    if (batch !== undefined && batch.tokens + length <= tokenBudget) {
      batch.tries.push(trie);
      batch.tokens += length;
    } else {
      batches.push({ tries: [trie], tokens: length });
    }
  }
  return batches;
}

/** What is to be scored in a batch. */
interface Scored {
  /** Places whose next token is scored, each once, as indices into the batch's tokens. */
  places: number[];
  /** One entry for every log-probability wanted: which of the places it is read at, and of which token. */
  targets: { row: number; k: number; place: number; token: number }[];
}

function findScored(batch: Batch, rows: readonly ScoredRow[]): Scored {
  const places: number[] = [];
  const targets: Scored["targets"] = [];
  let start = 0;
  for (const trie of batch.tries) {
    const known = new Map<number, number>();
    for (const [row, path] of trie.paths) {
      const { continuation } = rows[row]!;
      continuation.forEach((token, k) => {
        const node = path[path.length - continuation.length + k]!;
        let place = known.get(node);
        if (place === undefined) {
          place = places.length;
          known.set(node, place);
          places.push(start + node);
        }
        targets.push({ row, k, place, token });
      });
    }
    start += trie.tokens.length;
  }
  return { places, targets };
}

/** Logits are made for at most this many numbers at a time, less where no gradient needs them to be kept anyway. */
const LOGITS_AT_ONCE = { training: 2 ** 27, inference: 2 ** 25 };

interface ReadingOptions {
  dtype: "float32" | "float64";
  gradientCheckpointing: boolean;
  entropy: boolean;
  head: ReadHead | undefined;
}

/** What is wanted of a batch's targets, in their order: each dtype [targets]. */
function scoreBatch(model: CausalLM, batch: Batch, scored: Scored, options: ReadingOptions): TokenOutputs {
  const { dtype, gradientCheckpointing, entropy, head } = options;
  const { vocabSize } = model.config;
  const hidden = scope(() => readBatch(model, batch, scored.places, gradientCheckpointing).squeeze(0)); // [places, D]
  const limit =
    isGradEnabled() && !gradientCheckpointing ? LOGITS_AT_ONCE.training : LOGITS_AT_ONCE.inference;
  const step = Math.max(1, Math.floor(limit / vocabSize));
  const logprobs: Tensor[] = [];
  const entropies: Tensor[] = [];
  const order: number[] = [];
  for (let start = 0; start < scored.places.length; start += step) {
    const end = Math.min(start + step, scored.places.length);
    const wanted: number[] = [];
    scored.targets.forEach(({ place, token }, target) => {
      if (place < start || place >= end) return;
      wanted.push((place - start) * vocabSize + token);
      order.push(target);
    });
    // What is computed again in the backward pass is one tensor: [wanted], then [end − start] of entropies.
    const read = (states?: Tensor, indices?: Tensor) =>
      scope(() => {
        const logits = model.logits(states!);
        if (!entropy) return selectiveLogSoftmax(logits, indices!, dtype);
        const both = selectiveLogSoftmaxWithEntropy(logits, indices!, dtype);
        return cat([both.logprobs, both.entropy], 0);
      });
    const numbers = scope(() => {
      const inputs = [hidden.narrow(0, start, end - start), ids(wanted, model.device)];
      return gradientCheckpointing
        ? checkpoint(read, inputs, model.namedParameters().values())
        : read(...inputs);
    });
    if (entropy) entropies.push(numbers.narrow(0, wanted.length, end - start));
    logprobs.push(entropy ? numbers.narrow(0, 0, wanted.length) : numbers);
  }
  const inverse = new Int32Array(order.length);
  order.forEach((target, at) => (inverse[target] = at));
  // [places] → [targets]
  const ofTargets = (numbers: Tensor) =>
    numbers.indexSelect(
      0,
      ids(
        scored.targets.map(({ place }) => place),
        model.device,
      ),
    );
  return {
    logprobs: cat(logprobs, 0).indexSelect(0, ids(inverse, model.device)),
    ...(entropy ? { entropy: ofTargets(cat(entropies, 0)) } : {}),
    ...(head === undefined ? {} : { head: ofTargets(head(hidden)) }),
  };
}

/** Hidden states at some places of a batch: [1, places, D]. */
function readBatch(
  model: CausalLM,
  { tries }: Batch,
  places: readonly number[],
  gradientCheckpointing: boolean,
): Tensor {
  const { device } = model;
  const positions = ids(
    tries.flatMap((trie) => trie.depths),
    device,
  ).unsqueeze(0);
  const segments = tries.map((trie) => {
    const { length } = trie.tokens;
    if (isChain(trie)) return { length, mask: null };
    const mask = tensor(ancestorMask(trie), { dtype: "bool", shape: [1, 1, length, length], device });
    return { length, mask };
  });
  const tokens = ids(
    tries.flatMap((trie) => trie.tokens),
    device,
  ).unsqueeze(0);
  return model.forward(tokens, {
    positions,
    mask: null,
    segments,
    places: ids(places, device),
    gradientCheckpointing,
  });
}

function ids(values: Int32Array | readonly number[], device: string): Tensor {
  return tensor(Int32Array.from(values), { device }).to("int64");
}
