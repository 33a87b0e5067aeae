import { basename, dirname, join } from "node:path";
import { UsageError } from "@astra-rl/base";
import { rolesOf, type LabelledEvaluation, type OneComparison } from "@astra-rl/analysis";
import { figureOf, type Figure, type FigureKey } from "@astra-rl/records";
import { scorerName } from "./comparison-report.js";
import {
  differenceOf,
  figureRow,
  intervalRow,
  percentBetween,
  pointsBetween,
  pValue,
  share,
} from "./figures.js";
import { markdownTable } from "./markdown.js";
import { table } from "./table.js";
import { visible } from "./visible.js";

/** A table: a heading and rows of the same length. */
export interface Table {
  heading: string[];
  rows: string[][];
}

const SHOWN: readonly FigureKey[] = [
  "success_rate",
  "cluster_success_rate",
  "harmless_probe_success_rate",
  "over_refusal_rate",
  "harmful_probe_rate",
  "n_distinct_probes",
  "mean_probe_nll",
  "mean_reward",
];

/** p-values that are adjusted for several comparisons. */
const ADJUSTED: Partial<Record<FigureKey, keyof OneComparison["adjusted"]>> = {
  success_rate: "success",
  harmless_probe_success_rate: "harmless",
};

/** Several evaluations side by side, each with its differences from the first. */
export function compareTable(
  evaluations: readonly LabelledEvaluation[],
  comparisons: readonly OneComparison[],
): Table {
  const summaries = evaluations.map(({ evaluation }) => evaluation.summary);
  const against = (label: string, of: (comparison: OneComparison) => string) => [
    label,
    "",
    ...comparisons.map(of),
  ];
  const rowsOf = (key: FigureKey) => {
    const figure = figureOf(key);
    const isTested = figure.compared !== undefined;
    const values = figureRow(figure, summaries);
    if (values.length === 0) return [];
    return [
      ...values,
      ...(isTested ? intervalRow(figure, summaries) : []),
      ...(key === "success_rate" ? [judges] : []),
      ...(isTested ? differenceRows(figure, comparisons, against) : []),
    ];
  };
  const judges = [
    "  judged by",
    ...evaluations.map(({ evaluation: { measured } }) => (measured ? scorerName(measured.scorer) : "–")),
  ];
  const rows = [
    ...SHOWN.flatMap(rowsOf),
    ["rollouts (with errors)", ...summaries.map((s) => `${s.n_rollouts} (${s.n_errors})`)],
    against("pairs", ({ record }) => (record === null ? "none" : String(record.n_pairs))),
  ];
  return { heading: ["", ...evaluations.map(({ label }) => visible(label))], rows };
}

/** Each difference from the first evaluation, with its interval and its test, if any. */
function differenceRows(
  figure: Figure,
  comparisons: readonly OneComparison[],
  against: (label: string, of: (comparison: OneComparison) => string) => string[],
): string[][] {
  const found = ({ record }: OneComparison) => (record === null ? null : (figure.compared?.(record) ?? null));
  const adjusted = ADJUSTED[figure.key as FigureKey];
  const isShare = figure.interval !== undefined;
  const isTested = comparisons.some((each) => found(each)?.p_value !== undefined);
  return [
    against("  difference", (each) => differenceOf(figure, found(each)?.difference ?? null)),
    ...(isShare
      ? [against("  95 % interval", (each) => pointsBetween(found(each)?.difference_interval))]
      : []),
    ...(isTested
      ? [
          against(isShare ? "  paired test" : "  permutation test", (each) =>
            pValue(found(each)?.p_value ?? null),
          ),
        ]
      : []),
    ...(adjusted !== undefined && comparisons.length > 1
      ? [against("  adjusted (Holm)", (each) => pValue(each.adjusted[adjusted]))]
      : []),
  ];
}

/** Success of each tester against each target, with intervals. @throws UsageError for two evaluations of the same pair */
export function transferTable(evaluations: readonly LabelledEvaluation[]): Table {
  const roles = evaluations.map(({ evaluation }) => rolesOf(evaluation));
  const testers = [...new Set(roles.map(({ tester }) => tester))];
  const targets = [...new Set(roles.map(({ target }) => target))];
  const cell = (tester: string, target: string) => {
    const found = evaluations.filter((_, at) => roles[at]!.tester === tester && roles[at]!.target === target);
    if (found.length > 1) {
      const labels = found.map(({ label }) => label).join(" and ");
      throw new UsageError(
        "duplicate-pair",
        `compare: ${labels} have the same tester and target; --transfer accepts one evaluation per pair`,
      );
    }
    const summary = found[0]?.evaluation.summary;
    return summary === undefined
      ? "–"
      : `${share(summary.success_rate, summary.n_successes, summary.n_scored)}, ${percentBetween(summary.success_rate_interval)}`;
  };
  return {
    heading: ["tester", ...targets.map((target) => `against ${visible(nameOf(target))}`)],
    rows: testers.map((tester) => [
      visible(nameOf(tester)),
      ...targets.map((target) => cell(tester, target)),
    ]),
  };
}

/** A checkpoint of a run by the run's name and its own. */
function nameOf(model: string): string {
  const isOfRun = basename(dirname(model)) === "checkpoints";
  return isOfRun ? join(basename(dirname(dirname(model))), basename(model)) : model;
}

/** As lines of a terminal. */
export const tableLines = ({ heading, rows }: Table): string[] => table(heading, rows);

/** As Markdown. */
export const tableMarkdown = ({ heading, rows }: Table): string[] => markdownTable(heading, rows, "--:");
