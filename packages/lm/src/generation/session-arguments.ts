// What callers pass to a session, and the checks of it.
import { describeValue, UsageError } from "@astra-rl/base";
import type { CausalLM } from "../causal-lm.js";
import { checkTokenIds, standIn } from "../token-ids.js";
import type { CacheBudget } from "./session-budget.js";
import type { WorkCounters } from "./session-counters.js";
import type { DecodeGraphs } from "./static/decode-graphs.js";

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
  /**
   * The static steps of this model, with which rows are decoded that fit in one of their buckets: on a GPU, each step is
   * replayed as a graph. Does not change results. Default: none.
   */
  graphs?: DecodeGraphs | null;
  /** Also counts the work of this session and its forks, for example all work of one model. */
  work?: WorkCounters;
  /** Called once for a session and its forks, when text no longer fits the context window. */
  log?: (message: string) => void;
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

/** Texts without empty ones. @throws UsageError if an id is outside the vocabulary */
export function textsOf(
  where: string,
  texts: readonly (readonly number[])[],
  model: CausalLM,
): (readonly number[])[] {
  return texts.map((ids, at) => {
    checkTokenIds(`${where} ${at}`, ids, model.config.vocabSize);
    return ids.length > 0 ? ids : [standIn(model, `${where} ${at}`)];
  });
}

/** Number of pinned leading ids per row. */
export function pinsOf(
  what: string,
  pinned: number | readonly number[],
  rows: readonly (readonly number[])[],
  model: CausalLM,
): number[] {
  const pins = typeof pinned === "number" ? rows.map(() => pinned) : [...pinned];
  if (pins.length !== rows.length) {
    throw new UsageError(
      "length-mismatch",
      `${what}: expected one number for each of ${rows.length} rows, got ${pins.length}`,
    );
  }
  for (const [row, pin] of pins.entries()) {
    checkWhole(what, pin, 0);
    const most = model.config.contextLength - 1;
    if (Math.min(pin, rows[row]!.length) > most) checkWhole(what, pin, 0, most);
  }
  return pins;
}

/** The indices within the spans. @throws UsageError for spans that are not ascending or outside the ids */
export function indicesOf(where: string, spans: readonly ScoredSpan[], length: number): number[] {
  const indices: number[] = [];
  let end = 0;
  for (const [from, to] of spans) {
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || from < end || to < from || to > length) {
      throw new UsageError(
        "invalid-spans",
        `${where}: spans to score must be [from, to] in ascending order within its ${length} ids, ` +
          `got ${describeValue(spans)}`,
      );
    }
    for (let index = from; index < to; index += 1) indices.push(index);
    end = to;
  }
  return indices;
}

/** @throws UsageError for anything but an integer of that range */
export function checkWhole(what: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
    throw new UsageError(
      "out-of-range",
      `${what}: must be a whole number ${range}, got ${describeValue(value)}`,
    );
  }
}
