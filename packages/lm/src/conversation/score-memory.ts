import type { CausalLM } from "../causal-lm.js";
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

export function remember(
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
export function find(
  model: CausalLM,
  message: Message,
  context: readonly number[],
  continuation: readonly number[],
): readonly number[] | null {
  const known = scoredBy.get(model)?.get(message);
  if (known === undefined || !isEqual(known.context, context)) return null;
  const { length } = continuation;
  return known.logprobs.length < length ? null : known.logprobs.slice(0, length);
}

export const isEqual = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((id, at) => id === b[at]);
