import type { ComparisonRecord, EvaluationSummary, IntervalRecord } from "astra-rl/records";

/** A share of an evaluation, as a report shows it. */
export interface Rate {
  name: string;
  /** Whether it is shown as a picture, too. */
  isDrawn: boolean;
  value: (summary: EvaluationSummary) => number | null;
  interval: (summary: EvaluationSummary) => Pick<IntervalRecord, "lower" | "upper"> | null;
  /** Such as "89 of 128"; null where the record does not say. */
  count: (summary: EvaluationSummary) => string | null;
  /** What a comparison says of it; undefined where that compares other things only. */
  compared?: (comparison: ComparisonRecord) => RateDifference | null;
}

/** A paired difference of two rates. */
export type RateDifference = Pick<ComparisonRecord, "difference" | "difference_interval" | "p_value">;

/** A figure of an evaluation; null where it was not measured. */
export function numberAt(summary: Readonly<Record<string, unknown>>, key: string): number | null {
  const value = summary[key];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** A figure of how different the found attacks are; null where that was not measured. */
export function diversityAt(summary: EvaluationSummary, key: string): number | null {
  return numberAt((summary.diversity ?? {}) as Record<string, unknown>, key);
}

function intervalAt(summary: EvaluationSummary, key: string): Pick<IntervalRecord, "lower" | "upper"> | null {
  const value = summary[key] as Partial<IntervalRecord> | null | undefined;
  if (typeof value?.lower !== "number" || typeof value.upper !== "number") return null;
  return { lower: value.lower, upper: value.upper };
}

function countAt(summary: EvaluationSummary, part: string, whole: string): string | null {
  const [some, all] = [numberAt(summary, part), numberAt(summary, whole)];
  return some === null || all === null ? null : `${some} of ${all}`;
}

const rate = (
  key: string,
  interval: string,
  part: string,
  whole: string,
): Pick<Rate, "value" | "interval" | "count"> => ({
  value: (summary) => numberAt(summary, key),
  interval: (summary) => intervalAt(summary, interval),
  count: (summary) => countAt(summary, part, whole),
});

const RATES: readonly Rate[] = [
  {
    name: "Success with harmless probes only",
    isDrawn: true,
    ...rate(
      "harmless_probe_success_rate",
      "harmless_probe_success_rate_interval",
      "n_harmless_probe_successes",
      "n_harmless_probe_scored",
    ),
    compared: (comparison) => (comparison["harmless_probe"] as RateDifference | null | undefined) ?? null,
  },
  {
    name: "Success",
    isDrawn: true,
    ...rate("success_rate", "success_rate_interval", "n_successes", "n_scored"),
    compared: (comparison) => comparison,
  },
  {
    name: "Success by the second scorer",
    isDrawn: true,
    value: ({ second }) => second?.success_rate ?? null,
    interval: ({ second }) => second?.success_rate_interval ?? null,
    count: ({ second }) =>
      second === undefined ? null : `${second.n_both + second.n_second_only} of ${second.n_scored}`,
    compared: ({ second }) => second ?? null,
  },
  {
    name: "Success, each cluster of attacks once",
    isDrawn: true,
    value: (summary) => diversityAt(summary, "cluster_success_rate"),
    interval: () => null,
    count: (summary) => {
      const clusters = diversityAt(summary, "n_clusters");
      return clusters === null ? null : `${clusters} of ${summary.n_scored}`;
    },
  },
  {
    name: "Harmful probes",
    isDrawn: false,
    ...rate("harmful_probe_rate", "harmful_probe_rate_interval", "n_harmful_probes", "n_probes"),
  },
];

/** Those that at least one of the evaluations knows. */
export function knownRates(summaries: readonly EvaluationSummary[]): Rate[] {
  return RATES.filter(({ value }) => summaries.some((summary) => value(summary) !== null));
}
