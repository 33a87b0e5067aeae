import { tokenLogprobs, type CausalLM } from "@astra-rl/lm";
import { noGrad, scope } from "@astra-rl/torch";

/** Maximum number of tokens per forward pass with several rows: its attention mask grows with their square. */
const TOKENS_AT_ONCE = 4096;

/**
 * log P of tokens as the next one after each row of ids, from a softmax over the full vocabulary. What the rows of a batch have in
 * common at their beginning is computed once.
 *
 * @param tokens ids, the same for all rows
 * @param batchSize maximum number of rows per forward pass
 * @returns for each row, in order, one number for each token
 */
export function nextTokenLogprobs(
  model: CausalLM,
  rows: readonly (readonly number[])[],
  tokens: readonly number[],
  batchSize: number,
): number[][] {
  const logprobs: number[][] = [];
  for (const batch of batchesOf(rows, batchSize)) {
    const scored = batch.flatMap((row) =>
      tokens.map((token) => ({ context: rows[row]!, continuation: [token] })),
    );
    const values = noGrad(() =>
      scope(() => {
        const found = tokenLogprobs(model, scored, { tokenBudget: TOKENS_AT_ONCE }); // [rows × tokens, 1]
        return Array.from(found.toTypedArray() as Float32Array);
      }),
    );
    for (const [index, row] of batch.entries()) {
      logprobs[row] = values.slice(index * tokens.length, (index + 1) * tokens.length);
    }
  }
  return logprobs;
}

/** Row indices of each batch: shortest first, limited by batch size and tokens per pass. */
function batchesOf(rows: readonly (readonly number[])[], batchSize: number): number[][] {
  const order = [...rows.keys()].sort((a, b) => rows[a]!.length - rows[b]!.length);
  const batches: number[][] = [];
  let tokens = Infinity;
  for (const row of order) {
    const batch = batches.at(-1);
    const own = batch === undefined ? 0 : rows[row]!.length - commonLength(rows[batch[0]!]!, rows[row]!);
    if (batch !== undefined && batch.length < batchSize && tokens + own <= TOKENS_AT_ONCE) {
      batch.push(row);
      tokens += own;
    } else {
      batches.push([row]);
      tokens = rows[row]!.length;
    }
  }
  return batches;
}

function commonLength(a: readonly number[], b: readonly number[]): number {
  const differs = a.findIndex((id, at) => id !== b[at]);
  return differs < 0 ? a.length : differs;
}
