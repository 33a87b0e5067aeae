import { clusterSuccessRate, type EvaluationSummary, type IntervalRecord } from "../records/index.js";

/** A share as a percentage with one decimal; "–" if unknown. */
export function percent(share: number | null): string {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}

/** The row under success that counts each cluster of attacks once; none where no evaluation measured it. */
export function eachClusterOnce(summaries: readonly EvaluationSummary[]): string[][] {
  const rates = summaries.map((summary) => clusterSuccessRate(summary));
  return rates.every((rate) => rate === null)
    ? []
    : [["  success, each cluster once", ...rates.map(percent)]];
}

/** A number with a sign and the given decimals; "–" if unknown. */
export function signed(value: number | null, decimals = 2): string {
  if (value === null) return "–";
  const text = plain(value, decimals);
  return text.startsWith("−") ? text : `+${text}`;
}

/** A number with the given decimals; "–" if unknown. */
export function plain(value: number | null, decimals = 2): string {
  // Never −0.00.
  return value === null
    ? "–"
    : value
        .toFixed(decimals)
        .replace(/^-(?=.*[1-9])/, "−")
        .replace("-", "");
}

/** For example "p = 0.031" or "p = 2e-14"; never "p = 0". */
export function pValue(p: number | null): string {
  if (p === null) return "p unknown";
  return `p = ${p >= 0.001 ? p.toFixed(3) : p.toExponential(0)}`;
}

/** A share with its counts, such as "25.0 % (2/8)"; "–" if unknown. */
export const share = (rate: number | null, part: number | null, whole: number | null): string =>
  rate === null ? "–" : `${percent(rate)} (${part}/${whole})`;

export const percentBetween = (interval: Pick<IntervalRecord, "lower" | "upper"> | null): string =>
  interval === null ? "–" : `${percent(interval.lower)} to ${percent(interval.upper)}`;

/** A difference of shares in percentage points. */
export const points = (difference: number | null = null): string =>
  difference === null ? "–" : `${signed(100 * difference, 1)} points`;

export const pointsBetween = (interval: IntervalRecord | null = null): string =>
  interval === null ? "–" : `${signed(100 * interval.lower, 1)} to ${signed(100 * interval.upper, 1)}`;

export const distinctProbes = ({ n_distinct_probes: distinct, n_probes: n }: EvaluationSummary): string =>
  distinct === null || n === null ? "–" : `${distinct} of ${n}`;
