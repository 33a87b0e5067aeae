import type { CausalLM } from "../causal-lm.js";
import { equalIds } from "../token-ids.js";
import type { Message } from "./conversation.js";

/**
 * Log-probabilities of a message under frozen weights: of the kept ids, and of the end-of-sequence id if it
 * was requested.
 */
interface Scored {
  readonly context: readonly number[];
  readonly logprobs: readonly number[];
}

/** Scores by weights, so that models with shared weights share them. */
const scoredBy = new WeakMap<CausalLM, WeakMap<Message, Scored>>();

/** Keeps log-probabilities of a message after a context, for `knownScores`. */
export function rememberScores(
  model: CausalLM,
  message: Message,
  context: readonly number[],
  logprobs: readonly number[],
): void {
  const known = scoredBy.get(model) ?? new WeakMap<Message, Scored>();
  scoredBy.set(model, known);
  known.set(message, { context, logprobs });
}

/** Log-probabilities of a message's ids, if these weights have scored it after the same context; else null. */
export function knownScores(
  model: CausalLM,
  message: Message,
  context: readonly number[],
  continuation: readonly number[],
): readonly number[] | null {
  const known = scoredBy.get(model)?.get(message);
  if (known === undefined || !equalIds(known.context, context)) return null;
  const { length } = continuation;
  return known.logprobs.length < length ? null : known.logprobs.slice(0, length);
}
