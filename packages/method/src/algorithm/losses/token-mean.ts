import { tensor, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";

/**
 * Reduction of per-token losses:
 *
 * - `token`: their mean over all tokens of the batch (Yu et al., "DAPO", arXiv 2503.14476, equation 8);
 * - `sequence`: the mean over probes of each probe's mean (Shao et al., "DeepSeekMath", arXiv 2402.03300, equation
 *   3);
 * - `none`: the mean over probes of each probe's sum, which is the unnormalized policy gradient (Williams 1992), and
 *   Dr. GRPO's up to a constant (Liu et al., arXiv 2503.20783).
 */
export type Normalizer = "token" | "sequence" | "none";

export const NORMALIZERS = ["token", "sequence", "none"] as const satisfies readonly Normalizer[];

/**
 * Reduces a batch's token losses to a scalar, without padding; an empty batch gives 0.
 *
 * @param losses [B, T]
 * @param lengths number of tokens in each row
 */
export function tokenMean(losses: Tensor, lengths: readonly number[], normalizer: Normalizer): Tensor {
  const [rows, columns] = losses.shape as [number, number];
  if (lengths.length !== rows) {
    throw new UsageError(
      "length-mismatch",
      `tokenMean: needs a length for each of ${rows} rows, got ${lengths.length}`,
    );
  }
  const weights = new Float64Array(rows * columns);
  const total = countedAs(lengths, normalizer);
  for (const [row, length] of lengths.entries()) {
    const weight = 1 / (normalizer === "sequence" ? length * total : total);
    weights.fill(weight, row * columns, row * columns + length);
  }
  const { dtype, device } = losses;
  return losses
    .mul(
      tensor(weights, { shape: [rows, columns] })
        .to(dtype)
        .to(device),
    )
    .sum();
}

/** Number of tokens or probes that the mean is taken over. */
export function countedAs(lengths: readonly number[], normalizer: Normalizer): number {
  return normalizer === "token" ? lengths.reduce((sum, length) => sum + length, 0) : lengths.length;
}
