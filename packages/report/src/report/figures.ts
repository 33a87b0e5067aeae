import type { EvaluationSummary, Figure, FigureKey, IntervalRecord } from "@astra-rl/records";
import { visible } from "./visible.js";

type Ends = Pick<IntervalRecord, "lower" | "upper">;

/** A share as a percentage with one decimal; "–" if unknown. */
export function percent(share: number | null): string {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
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

export const percentBetween = (interval: Ends | null): string =>
  interval === null ? "–" : between("percent", interval);

/** A difference of shares in percentage points. */
export const points = (difference: number | null = null): string =>
  difference === null ? "–" : `${signed(100 * difference, 1)} points`;

export const pointsBetween = (interval: IntervalRecord | null = null): string =>
  interval === null ? "–" : `${signed(100 * interval.lower, 1)} to ${signed(100 * interval.upper, 1)}`;

/** A value of a figure. */
export const written = (format: Figure["format"], value: number | null): string =>
  format === "percent" ? percent(value) : plain(value, format === "whole" ? 0 : 2);

/** An interval of a figure. */
export const between = (format: Figure["format"], interval: Ends): string =>
  `${written(format, interval.lower)} to ${written(format, interval.upper)}`;

/** Cells that include a second figure. */
const TWO_FIGURES: Partial<
  Record<FigureKey, (diversity: NonNullable<EvaluationSummary["diversity"]>) => string>
> = {
  n_clusters: ({ n_clusters: clusters, effective_clusters: effective }) =>
    effective === null ? `${clusters}` : `${clusters} (${plain(effective, 1)})`,
  n_structures: ({ n_structures: structures, structure_distance: distance }) =>
    `${structures} (${plain(distance)})`,
};

function cellOf(figure: Figure, summary: EvaluationSummary): string {
  const { key, format, value, count, interval } = figure;
  const both = TWO_FIGURES[key as FigureKey];
  if (both !== undefined) return summary.diversity === null ? "–" : both(summary.diversity);
  const found = value(summary);
  const { part, whole } = count?.(summary) ?? {};
  if (part === undefined || found === null) return written(format, found);
  if (format === "whole") return `${part} of ${whole}`;
  // Clusters are not trials: a share of them has no interval and no counts.
  return interval === undefined ? percent(found) : `${percent(found)} (${part}/${whole})`;
}

/** The row of a figure in text tables, a cell for each evaluation; none if no evaluation measured it. */
export function figureRow(figure: Figure, summaries: readonly EvaluationSummary[]): string[][] {
  const { key, row, isMeasured = () => true } = figure;
  if (row === null || !summaries.some(isMeasured)) return [];
  const second = summaries.flatMap((summary) => summary.second?.scorer ?? [])[0];
  const label = key === "second_success_rate" ? `success by ${visible(second!)}` : row;
  return [[label, ...summaries.map((summary) => cellOf(figure, summary))]];
}

/** The row below with the figure's intervals; none for a figure without. */
export const intervalRow = ({ interval }: Figure, summaries: readonly EvaluationSummary[]): string[][] =>
  interval === undefined
    ? []
    : [["  95 % interval", ...summaries.map((summary) => percentBetween(interval(summary)))]];

/** A difference of a figure between evaluations: of shares in percentage points. */
export const differenceOf = ({ format }: Figure, difference: number | null): string =>
  format === "percent" ? points(difference) : signed(difference);
