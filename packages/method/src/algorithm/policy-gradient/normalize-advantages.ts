/** Avoids division by zero if all advantages are equal. */
const EPSILON = 1e-8;

/**
 * Normalizes advantages to mean 0 and standard deviation 1 over all tokens (population standard deviation, divided by
 * n, so that a single token gives 0 instead of NaN). Rows contain only probe tokens, no prompts or padding.
 *
 * Not in the PPO paper; common in implementations since openai/baselines: Huang et al., "The 37 Implementation Details
 * of Proximal Policy Optimization" (2022), detail 7.
 */
export function normalizeAdvantages(rows: readonly (readonly number[])[]): number[][] {
  const { mean, std } = moments(rows.flat());
  return rows.map((row) => row.map((value) => (value - mean) / (std + EPSILON)));
}

/** Mean and population standard deviation (divided by n); 0 for no values. */
export function moments(values: readonly number[]): { mean: number; std: number } {
  if (values.length === 0) return { mean: 0, std: 0 };
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, std: Math.sqrt(squares / values.length) };
}
