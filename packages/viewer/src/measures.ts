import type { EvaluationSummary, IntervalRecord } from "astra-rl/records";

/** A share of an evaluation, as a report shows it. */
export interface Rate {
  name: string;
  /** The rate that the comparison is about. */
  isSuccess: boolean;
  /** Whether it is shown as a picture, too. */
  isDrawn: boolean;
  value: (summary: EvaluationSummary) => number | null;
  interval: (summary: EvaluationSummary) => Pick<IntervalRecord, "lower" | "upper"> | null;
  /** Such as "89 of 128"; null where the record does not say. */
  count: (summary: EvaluationSummary) => string | null;
}

const numberAt = (summary: EvaluationSummary, key: string): number | null => {
  const value = summary[key];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
};

function intervalAt(summary: EvaluationSummary, key: string): Pick<IntervalRecord, "lower" | "upper"> | null {
  const value = summary[key] as Partial<IntervalRecord> | null | undefined;
  if (typeof value?.lower !== "number" || typeof value.upper !== "number") return null;
  return { lower: value.lower, upper: value.upper };
}

const RATES: readonly Rate[] = [
  {
    name: "Success",
    isSuccess: true,
    isDrawn: true,
    value: (summary) => numberAt(summary, "pct_rollouts_with_target_toxicity/attack_success_rate"),
    interval: (summary) => intervalAt(summary, "attack_success_rate_interval"),
    count: ({ n_attack_successes, n_scored }) => `${n_attack_successes} of ${n_scored}`,
  },
];

/** Those that at least one of the evaluations knows. */
export function knownRates(summaries: readonly EvaluationSummary[]): Rate[] {
  return RATES.filter(({ value }) => summaries.some((summary) => value(summary) !== null));
}
