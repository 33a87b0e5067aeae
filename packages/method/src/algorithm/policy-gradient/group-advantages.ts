export interface GroupAdvantageOptions {
  /** Baseline of each value: the mean of the others (RLOO), or of all (GRPO). */
  baseline: "others" | "mean";
  /** std: divide by the standard deviation (GRPO); none: do not (RLOO, Dr. GRPO). */
  scale: "none" | "std";
}

/** Avoids division by zero if all values are equal. */
const EPSILON = 1e-4;

/**
 * Advantage of each value relative to its group. null for a group of fewer than two.
 *
 * - `others`, RLOO: r − mean of the others. Ahmadian et al., "Back to Basics", arXiv 2402.14740.
 * - `mean`, GRPO: r − mean, with `std` divided by the sample standard deviation (n − 1) plus 1e-4. Shao et al.,
 *   "DeepSeekMath", arXiv 2402.03300, section 4.1.2; without the division Liu et al., "Understanding R1-Zero-Like
 *   Training", arXiv 2503.20783.
 */
export function groupAdvantages(
  values: readonly number[],
  { baseline, scale }: GroupAdvantageOptions,
): number[] | null {
  const count = values.length;
  if (count < 2) return null;
  const sum = values.reduce((total, value) => total + value, 0);
  const mean = sum / count;
  const squares = values.reduce((total, value) => total + (value - mean) ** 2, 0);
  const divisor = scale === "std" ? Math.sqrt(squares / (count - 1)) + EPSILON : 1;
  return values.map(
    (value) => (value - (baseline === "mean" ? mean : (sum - value) / (count - 1))) / divisor,
  );
}
