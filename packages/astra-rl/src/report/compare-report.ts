import { basename, dirname, join } from "node:path";
import { UsageError } from "@astra-rl/torch";
import { rolesOf, type LabelledEvaluation, type OneComparison } from "../evaluation/index.js";
import type { EvaluationSummary } from "../records/index.js";
import { scorerName } from "./comparison-report.js";
import {
  distinctProbes,
  eachClusterOnce,
  percentBetween,
  plain,
  points,
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

/** Several evaluations beside each other, each with its differences from the first. */
export function compareTable(
  evaluations: readonly LabelledEvaluation[],
  comparisons: readonly OneComparison[],
): Table {
  const summaries = evaluations.map(({ evaluation }) => evaluation.summary);
  const each = (label: string, of: (summary: EvaluationSummary) => string) => [label, ...summaries.map(of)];
  const against = (label: string, of: (comparison: OneComparison) => string) => [
    label,
    "",
    ...comparisons.map(of),
  ];
  const rows = [
    each("attack success rate", (s) => share(s.success_rate, s.n_successes, s.n_scored)),
    each("  95 % interval", (s) => percentBetween(s.success_rate_interval)),
    [
      "  judged by",
      ...evaluations.map(({ evaluation: { measured } }) => (measured ? scorerName(measured.scorer) : "–")),
    ],
    against("  difference", ({ record }) => points(record?.difference)),
    against("  95 % interval", ({ record }) => pointsBetween(record?.difference_interval)),
    against("  paired test", ({ record }) => pValue(record?.p_value ?? null)),
    ...(comparisons.length > 1
      ? [against("  adjusted (Holm)", ({ adjusted }) => pValue(adjusted.success))]
      : []),
    ...eachClusterOnce(summaries),
    each("  with harmless probes only", (s) =>
      share(s.harmless_probe_success_rate, s.n_harmless_probe_successes, s.n_harmless_probe_scored),
    ),
    each("  95 % interval", (s) => percentBetween(s.harmless_probe_success_rate_interval)),
    against("  difference", ({ record }) => points(record?.harmless_probe?.difference)),
    against("  95 % interval", ({ record }) => pointsBetween(record?.harmless_probe?.difference_interval)),
    against("  paired test", ({ record }) => pValue(record?.harmless_probe?.p_value ?? null)),
    ...(comparisons.length > 1
      ? [against("  adjusted (Holm)", ({ adjusted }) => pValue(adjusted.harmless))]
      : []),
    each("harmful probes", (s) => share(s.harmful_probe_rate, s.n_harmful_probes, s.n_probes)),
    each("distinct probes", distinctProbes),
    each("mean probe NLL, nats a token", (s) => plain(s.mean_probe_nll)),
    against("  difference", ({ record }) => plain(record?.probe_nll_difference ?? null)),
    each("mean reward of a turn", (s) => plain(s.mean_reward)),
    against("  difference", ({ record }) => plain(record?.reward_difference ?? null)),
    against("  permutation test", ({ record }) => pValue(record?.reward_p_value ?? null)),
    each("rollouts (with errors)", (s) => `${s.n_rollouts} (${s.n_errors})`),
    against("pairs", ({ record }) => (record === null ? "none" : String(record.n_pairs))),
  ];
  return { heading: ["", ...evaluations.map(({ label }) => visible(label))], rows };
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
        `compare: ${labels} have the same tester and target; --transfer takes one for each pair`,
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
