import { describeValue, UsageError } from "@astra-rl/base";
import { tensor, type Tensor } from "@astra-rl/torch";
import type { ModelConfig } from "./causal-lm.js";

/** @throws UsageError, starting with `where`, for ids outside the vocabulary */
export function checkTokenIds(where: string, ids: readonly number[], vocabSize: number): void {
  for (const id of ids) {
    if (Number.isSafeInteger(id) && id >= 0 && id < vocabSize) continue;
    throw new UsageError(
      "invalid-token-id",
      `${where}: a token id must be an integer from 0 to ${vocabSize - 1}, got ${describeValue(id)}`,
    );
  }
}

/**
 * The id that replaces an empty text: the beginning-of-text token, or the end-of-text token if there is none.
 *
 * @throws UsageError, starting with `where`, if the model has neither
 */
export function standIn(
  { config }: { config: Pick<ModelConfig, "bosId" | "eosIds"> },
  where = "an empty text",
): number {
  const id = config.bosId ?? config.eosIds[0];
  if (id !== undefined) return id;
  throw new UsageError(
    "empty-context",
    `${where}: an empty context needs a beginning- or end-of-text token to stand in for it, ` +
      `but the model's configuration names neither; give at least one token`,
  );
}

/** Token ids, positions or indices as an int64 tensor: [n]. */
export function idTensor(ids: ArrayLike<number>, device: string): Tensor {
  return tensor(Int32Array.from(ids), { dtype: "int64", device });
}

export const equalIds = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((id, at) => id === b[at]);

/** Number of ids with which both begin. */
export function commonLength(a: readonly number[], b: readonly number[]): number {
  const limit = Math.min(a.length, b.length);
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}
