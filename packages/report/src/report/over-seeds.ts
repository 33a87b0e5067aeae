import { statistics } from "@astra-rl/analysis";
import {
  doubtsOfEvaluation,
  doubtsOfFigures,
  SEED_FIGURES,
  type ReportEvaluation,
  type ReportRun,
  type RunDifference,
  type Figure,
  type SeedFigure,
  type SeedFigureKey,
  type SeedSummary,
} from "@astra-rl/records";
import { between, written } from "./figures.js";

/**
 * The last evaluations of at least two runs that differ only in their seed, as means over seeds: one seed's figures do
 * not predict those of another. Inconclusive evaluations are counted and excluded.
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
      const overCounted = (figure: Figure) =>
        seedFigureOf(
          counted.flatMap((at) => figure.value(evaluations[at]!.summary) ?? []),
          figure.format === "percent",
        );
      return {
        label,
        runs: members,
        evaluations: counted,
        n_without_verdict: last.length - counted.length,
        ...(Object.fromEntries(SEED_FIGURES.map((figure) => [figure.key, overCounted(figure)])) as Record<
          SeedFigureKey,
          SeedFigure | null
        >),
      };
    });
}

const lastOf = (evaluations: readonly ReportEvaluation[], run: string): number =>
  evaluations.findLastIndex((each) => each.run === run);

function seedFigureOf(values: readonly number[], isShare: boolean): SeedFigure | null {
  if (values.length === 0) return null;
  const interval = statistics.seedInterval(values);
  return {
    mean: statistics.mean(values),
    // Student's t interval of a share is clamped to between 0 and 1.
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
  const cell = ({ key, format }: (typeof SEED_FIGURES)[number], seed: SeedSummary) => {
    const found = seed[key];
    if (found === null) return "–";
    const range = found.interval === null ? "no interval" : between(format, found.interval);
    return `${written(format, found.mean)} (${range})`;
  };
  return {
    heading: ["", "seeds", ...SEED_FIGURES.map(({ heading }) => heading)],
    rows: seeds.map((each) => [
      each.label === "" ? "all" : each.label,
      each.n_without_verdict === 0
        ? String(each.evaluations.length)
        : `${each.evaluations.length}, and ${each.n_without_verdict} without a verdict`,
      ...SEED_FIGURES.map((figure) => cell(figure, each)),
    ]),
  };
}
