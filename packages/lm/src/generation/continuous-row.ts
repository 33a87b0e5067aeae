import type { DrawKey } from "@astra-rl/base";
import type { CausalLM } from "../causal-lm.js";
import { commonLength, standIn } from "../token-ids.js";
import type { ResolvedSampling, Sampling } from "./sampling.js";
import type { ScoredToken } from "./scored-tokens.js";
import { endsOf, StopDetector, type FinishReason, type TokenDecoder } from "./stop.js";

/** Fewer common leading tokens are not worth copying. */
const LEAST_PREFIX = 8;

/** The continuation of one text. */
export interface Continuation {
  /** Sampled ids, including an end id; truncated before a stop string, depending on `stopsWithinTokens`. */
  ids: readonly number[];
  /** Their text, without special tokens, up to the stop string. */
  text: string;
  /** null: nothing was to be sampled. */
  finished: FinishReason | null;
  /** Tokens of the given text that were not prefilled, because they were in the cache. */
  reused: number;
}

/**
 * A text to continue. Nothing is called after `onFinish` or `onError`, nor after `cancel`; an exception of a function
 * ends only this text, with `onError`.
 */
export interface ContinuationRequest {
  /** Empty: replaced by the model's beginning-of-text token. */
  ids: readonly number[];
  /** null: the text is only prefilled. */
  sampling: Sampling | null;
  /** Key of the random draws. Not needed for greedy decoding. */
  key?: DrawKey;
  endIds?: readonly number[];
  /** The text ends exactly where a stop string begins: see `StopDetector`. Default: with a whole token. */
  stopsWithinTokens?: boolean;
  /** Number of likeliest tokens reported with each token. Default: no log-probabilities. */
  topLogprobs?: number;
  /** Called for each token of the given text, if `topLogprobs` is set; such a text uses nothing from the cache. */
  onRead?: (token: ScoredToken) => void;
  /** Called for each sampled token in order, end ids included; a stop string may still cut it off. */
  onToken?: (token: ScoredToken) => void;
  onFinish: (continuation: Continuation) => void;
  onError: (error: Error) => void;
}

/** A row of the cache: the ids in its columns, and its text. */
export interface Slot {
  readonly index: number;
  ids: readonly number[];
  row: Row | null;
  /** When it was last freed, counted in steps. */
  freed: number;
}

/** A text in progress. */
export class Row {
  /** The given ids, then the sampled ones. */
  readonly ids: number[];
  readonly given: number;
  readonly ends: ReadonlyMap<number, FinishReason>;
  readonly stops: StopDetector;
  /** Rows of the same kind are sampled in one operation. */
  readonly kind: string;
  cached = 0;
  reused = 0;
  slot: Slot | null = null;

  constructor(
    readonly request: ContinuationRequest,
    readonly sampling: ResolvedSampling | null,
    model: CausalLM,
    tokenizer: TokenDecoder,
  ) {
    this.ids = request.ids.length === 0 ? [standIn(model)] : [...request.ids];
    this.given = this.ids.length;
    const { stopsWithinTokens: withinTokens = false } = request;
    this.stops = new StopDetector(tokenizer, sampling?.stopStrings ?? [], { withinTokens });
    this.ends = endsOf(sampling?.stopIds ?? [], [...model.config.eosIds, ...(request.endIds ?? [])]);
    const { greedy, temperature, topK, topP, repetitionPenalty } = sampling ?? {};
    this.kind = JSON.stringify(greedy ? [repetitionPenalty] : [temperature, topK, topP, repetitionPenalty]);
  }

  get pending(): number {
    return this.ids.length - this.cached;
  }

  get sampled(): number {
    return this.ids.length - this.given;
  }

  /** Whether its text is scored, so that all of it has to be prefilled. */
  get isScored(): boolean {
    return this.request.onRead !== undefined && this.request.topLogprobs !== undefined;
  }

  /** Minimum length is not reached: end ids may not be sampled yet. */
  get isHeldBack(): boolean {
    return this.sampling !== null && this.sampled < this.sampling.minNewTokens;
  }
}

/**
 * The slot for a waiting text, and the slot whose first `length` columns it takes over.
 *
 * @param slots at least one of them is free
 * @returns null: it waits, since another text is still prefilling more of their common prefix
 */
export function placeFor(
  row: Row,
  slots: readonly Slot[],
): { slot: Slot; source: Slot; length: number } | null {
  // At least the last id is processed, for the state from which the next token is sampled.
  const most = row.isScored ? 0 : row.given - 1;
  const common = ({ row: user, ids }: Slot) =>
    Math.min(most, user?.cached ?? ids.length, commonLength(user?.ids ?? ids, row.ids));
  const source = slots.reduce((a, b) => (common(b) > common(a) ? b : a));
  const shared = common(source);
  const hoped = slots.map(({ row: user }) =>
    user === null ? 0 : Math.min(most, commonLength(user.ids, row.ids)),
  );
  if (Math.max(...hoped) > Math.max(shared, LEAST_PREFIX - 1)) return null;
  const length = shared < LEAST_PREFIX ? 0 : shared;
  // An unused row with little other content is taken over; otherwise the least recently used one gets a copy.
  const isTaken = length > 0 && source.row === null && source.ids.length < 2 * length + LEAST_PREFIX;
  const free = slots.filter(({ row: user }) => user === null);
  return { slot: isTaken ? source : free.reduce((a, b) => (b.freed < a.freed ? b : a)), source, length };
}
