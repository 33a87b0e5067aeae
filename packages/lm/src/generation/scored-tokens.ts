import { cast, sortedTopK, type Tensor } from "@astra-rl/torch";
import { idTensor } from "../token-ids.js";

/** A token with its log-probability under the full distribution, at temperature 1. */
export interface ScoredToken {
  id: number;
  /** null for the first token of a text. */
  logprob: number | null;
  /** The likeliest tokens at its position, likeliest first. */
  top: readonly { id: number; logprob: number }[];
}

/**
 * Log-probabilities of one token per row under the full distribution, and of the likeliest ones.
 *
 * @param logits [n, V]
 */
export function scoredTokens(logits: Tensor, ids: readonly number[], count: number): ScoredToken[] {
  const table = cast(logits, "float32").logSoftmax(-1);
  const own = table.gather(1, idTensor(ids, table.device).unsqueeze(1)).toTypedArray();
  const most = Math.min(count, table.size(1));
  if (most === 0) return ids.map((id, at) => ({ id, logprob: Number(own[at]), top: [] }));
  const { values, indices } = sortedTopK(table, most);
  const [logprobs, likely] = [values.toTypedArray(), indices.toTypedArray()];
  return ids.map((id, at) => ({
    id,
    logprob: Number(own[at]),
    top: Array.from({ length: most }, (_, rank) => ({
      id: Number(likely[at * most + rank]),
      logprob: Number(logprobs[at * most + rank]),
    })),
  }));
}
