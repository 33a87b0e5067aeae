import { statistics } from "../evaluation/index.js";
import {
  clusterSuccessRate,
  doubtsOfEvaluation,
  doubtsOfFigures,
  type EvaluationSummary,
  type ReportEvaluation,
  type ReportRun,
  type RunDifference,
  type SeedFigure,
  type SeedSummary,
} from "../records/index.js";
import { percent, percentBetween, plain } from "./figures.js";

/**
 * The last evaluations of runs that differ in their seed alone, at least two of them, as means over seeds: one seed's figures say
 * nothing of how another would come out. An evaluation whose figures say nothing is counted and left out.
 */
export function overSeeds(
  runs: readonly ReportRun[],
  evaluations: readonly ReportEvaluation[],
  differences: readonly RunDifference[],
): SeedSummary[] {
  const settings = new Map<string, number[]>();
  for (const [index, { configuration, label }] of runs.entries()) {
    if (configuration === null || lastOf(evaluations, label) < 0) continue;
    const name = differences
      .filter(({ key }) => key !== "seed")
      .map(({ key, values }) => `${key.split(".").at(-1)!}=${values[index]!}`)
      .join(", ");
    const members = settings.get(name) ?? [];
    // A run and its copy are one seed.
    const isCounted = members.some((other) => runs[other]!.configuration!["seed"] === configuration["seed"]);
    if (!isCounted) settings.set(name, [...members, index]);
  }
  return [...settings]
    .filter(([, members]) => members.length > 1)
    .map(([label, members]) => {
      const last = members.map((run) => lastOf(evaluations, runs[run]!.label));
      const counted = last.filter(
        (at) => doubtsOfFigures(doubtsOfEvaluation(evaluations[at]!.summary)).length === 0,
      );
      const figure = (of: (summary: EvaluationSummary) => number | null, isShare = true) =>
        figureOf(
          counted.flatMap((at) => of(evaluations[at]!.summary) ?? []),
          isShare,
        );
      return {
        label,
        runs: members,
        evaluations: counted,
        n_without_verdict: last.length - counted.length,
        success_rate: figure(({ success_rate: rate }) => rate),
        cluster_success_rate: figure(clusterSuccessRate),
        harmless_probe_success_rate: figure(({ harmless_probe_success_rate: rate }) => rate),
        mean_probe_nll: figure(({ mean_probe_nll: nll }) => nll, false),
      };
    });
}

const lastOf = (evaluations: readonly ReportEvaluation[], run: string): number =>
  evaluations.findLastIndex((each) => each.run === run);

function figureOf(values: readonly number[], isShare: boolean): SeedFigure | null {
  if (values.length === 0) return null;
  const interval = statistics.seedInterval(values);
  return {
    mean: statistics.mean(values),
    // A share lies between 0 and 1, whatever Student's t says.
    interval:
      interval === null
        ? null
        : {
            lower: isShare ? Math.max(0, interval.lower) : interval.lower,
            upper: isShare ? Math.min(1, interval.upper) : interval.upper,
          },
    n_seeds: values.length,
  };
}

/** The heading and rows of a table with a row for each setting. */
export function seedsTable(seeds: readonly SeedSummary[]): { heading: string[]; rows: string[][] } {
  const cell = (figure: SeedFigure | null, show: (value: number) => string, between: (i: Ends) => string) => {
    if (figure === null) return "–";
    const range = figure.interval === null ? "no interval" : between(figure.interval);
    return `${show(figure.mean)} (${range})`;
  };
  return {
    heading: ["", "seeds", "success", "each cluster once", "with harmless probes", "probe NLL"],
    rows: seeds.map((each) => [
      each.label === "" ? "all" : each.label,
      each.n_without_verdict === 0
        ? String(each.evaluations.length)
        : `${each.evaluations.length}, and ${each.n_without_verdict} without a verdict`,
      cell(each.success_rate, percent, percentBetween),
      cell(each.cluster_success_rate, percent, percentBetween),
      cell(each.harmless_probe_success_rate, percent, percentBetween),
      cell(each.mean_probe_nll, plain, ({ lower, upper }) => `${plain(lower)} to ${plain(upper)}`),
    ]),
  };
}

type Ends = NonNullable<SeedFigure["interval"]>;
