import { AstraError } from "@astra-rl/base";
import { TokenTable } from "./token-table.js";

/**
 * A system, scorer or algorithm returned something that its interface forbids. Never recorded as data: a bug must stop
 * the run.
 */
export class ContractError extends AstraError {
  override name = "ContractError";
}

/** A part returned NaN or infinite numbers. */
export class NotFiniteContractError extends ContractError {}

// Log-softmax in f32 can exceed zero by a rounding error; a correct one stays below this bound.
const ROUNDING = 1e-4;

/** Fails unless a batched call returned one result for each input. */
export function checkCount(where: string, results: readonly unknown[], expected: number): void {
  if (!Array.isArray(results)) {
    throw new ContractError(
      `${where}: must return an array with one entry for each input, got ${typeof results}`,
    );
  }
  if (results.length !== expected) {
    throw new ContractError(
      `${where}: must return one entry for each of ${expected} inputs, got ${results.length}`,
    );
  }
}

/** Fails unless two batched arguments have the same length. */
export function checkPaired(
  where: string,
  contexts: readonly unknown[],
  continuations: readonly unknown[],
): void {
  if (contexts.length !== continuations.length) {
    throw new ContractError(
      `${where}: needs one continuation for each context, got ${contexts.length} contexts and ` +
        `${continuations.length} continuations`,
    );
  }
}

export interface TableRules {
  /** Kind of numbers. Default: values, which may have any sign. */
  numbers?: "logprobs" | "entropy" | "values";
  /** B, the number of rows requested. */
  batch: number;
  /** Whether the tensor must carry a gradient (true) or must not (false); null to skip the check. */
  gradient: boolean | null;
  /** Device of previous tensors; null if this is the first. */
  device: string | null;
}

/**
 * Checks per-token numbers: one row per input, floating point, finite, 0 in the padding, gradient as required, one
 * device; log-probabilities at most 0, entropies at least 0.
 *
 * @throws ContractError that names the rule, the place and the value
 */
export function checkTable(
  where: string,
  returned: unknown,
  { numbers = "values", batch, gradient, device }: TableRules,
): asserts returned is TokenTable {
  if (!(returned instanceof TokenTable)) {
    const got = returned === null ? "null" : typeof returned;
    throw new ContractError(
      `${where}: must return a TokenTable, got ${got}; give a tensor [B, T] with the number of tokens of each row: ` +
        `new TokenTable(tensor, lengths)`,
    );
  }
  const { values: table, lengths } = returned;
  if (lengths.length !== batch) {
    throw new ContractError(
      `${where}: must return one row for each of ${batch} inputs, got ${lengths.length} rows`,
    );
  }
  if (table.dtype !== "float32" && table.dtype !== "float64") {
    throw new ContractError(
      `${where}: must be float32 or float64, since sums of many terms follow, got ${table.dtype}`,
    );
  }
  if (gradient === true && !table.requiresGrad) {
    throw new ContractError(
      `${where}: must carry a gradient, or training changes nothing; compute it outside noGrad() and without detach()`,
    );
  }
  if (gradient === false && table.requiresGrad) {
    throw new ContractError(
      `${where}: must not carry a gradient, since this model is frozen; compute it inside noGrad()`,
    );
  }
  if (device !== null && table.device !== device) {
    throw new ContractError(
      `${where}: must be on the same device as the other models' results (${device}), got ${table.device}; ` +
        `move the result before returning it`,
    );
  }
  const plain = table.detach();
  try {
    const values = plain.toTypedArray() as ArrayLike<number>;
    const columns = table.shape[1]!;
    const at = (i: number) => `got ${values[i]} at row ${Math.floor(i / columns)}, token ${i % columns}`;
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (!Number.isFinite(value)) throw new NotFiniteContractError(`${where}: must be finite, ${at(i)}`);
      const length = lengths[Math.floor(i / columns)]!;
      if (value !== 0 && i % columns >= length) {
        throw new ContractError(
          `${where}: must be 0 beyond each row's tokens, ${at(i)}, where the row has ${length} tokens`,
        );
      }
      if (numbers === "logprobs" && value > ROUNDING) {
        const areProbabilities = Array.from(values).every((each) => each >= 0 && each <= 1);
        const hint = areProbabilities ? "; they look like probabilities: take their log" : "";
        throw new ContractError(`${where}: log-probabilities must be at most 0, ${at(i)}${hint}`);
      }
      if (numbers === "entropy" && value < -ROUNDING) {
        throw new ContractError(`${where}: an entropy must be at least 0, ${at(i)}`);
      }
    }
  } finally {
    plain.dispose();
  }
}

/** Fails unless a table has the same lengths as the log-probabilities of the same continuations. */
export function checkSameTokens(where: string, table: TokenTable, logprobs: TokenTable): void {
  const row = table.lengths.findIndex((length, index) => length !== logprobs.lengths[index]);
  if (row < 0) return;
  throw new ContractError(
    `${where}: must have a number for each token that the log-probabilities have, got ${table.lengths[row]} of ` +
      `${logprobs.lengths[row]} in row ${row}`,
  );
}

/** Checks rewards: one finite number for each turn. */
export function checkRewards(where: string, rewards: readonly number[], expected: number): void {
  checkCount(where, rewards, expected);
  for (const [i, reward] of rewards.entries()) {
    if (typeof reward !== "number" || !Number.isFinite(reward)) {
      throw new ContractError(
        `${where}: every reward must be a finite number, got ${String(reward)} for input ${i}`,
      );
    }
  }
}
