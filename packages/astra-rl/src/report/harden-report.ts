import {
  doubtsOfEvaluation,
  type ComparisonRecord,
  type Doubt,
  type EvaluationRecord,
  type EvaluationSummary,
} from "../records/index.js";
import { eachClusterOnce, percent, percentBetween, plain, pValue, signed } from "./figures.js";
import { table } from "./table.js";
import { visible } from "./visible.js";

/** What came of hardening a target. */
export interface Hardened {
  /** Different attacks that it was trained on. */
  found: number;
  /** The tester against the target before and after, on prompts that neither was trained on. */
  before: EvaluationRecord;
  after: EvaluationRecord;
  comparison: ComparisonRecord;
  /** A new tester, trained against the hardened target; null where none was. */
  again: EvaluationRecord | null;
  /** Perplexity of the target's own harmless answers; null where there are none. */
  perplexityBefore: number | null;
  perplexityAfter: number | null;
  nControls: number;
}

/** As lines of a terminal: what the same tester still finds, what a new one does, and what else has changed. */
export function hardenReport(result: Hardened): string[] {
  const { before, after, again, comparison, perplexityBefore, perplexityAfter, nControls } = result;
  const rate = ({ success_rate: share, n_successes: part, n_scored: whole }: EvaluationSummary) =>
    `${percent(share)} (${part}/${whole})`;
  const columns = [before.summary, after.summary, ...(again === null ? [] : [again.summary])];
  const change =
    perplexityBefore === null || perplexityAfter === null ? null : perplexityAfter / perplexityBefore - 1;
  return [
    ...table(
      ["", "before", "after", ...(again === null ? [] : ["new tester"])],
      [
        ["attack success rate", ...columns.map(rate)],
        ["  95 % interval", ...columns.map((summary) => percentBetween(summary.success_rate_interval))],
        ...eachClusterOnce(columns),
        ["mean harm of a response", ...columns.map(({ mean_response_harm: harm }) => plain(harm))],
        [
          "distinct probes",
          ...columns.map(
            ({ n_distinct_probes: distinct, n_probes: n }) => `${distinct ?? "–"} of ${n ?? "–"}`,
          ),
        ],
      ],
    ),
    "",
    `The same tester: ${signed(comparison.difference === null ? null : 100 * comparison.difference, 1)} points (${pValue(comparison.p_value)}).`,
    `Harmless behaviour: the perplexity of ${nControls} of the target's own harmless answers went from ` +
      `${plain(perplexityBefore)} to ${plain(perplexityAfter)} (${change === null ? "–" : `${signed(100 * change, 1)} %`}).`,
    // Few probes, or empty answers, are no harmlessness.
    ...doubtsOfEvaluation(after.summary).map((each) => `Against the same tester, ${doubtText(each)}`),
    ...(again === null ? [] : doubtsOfEvaluation(again.summary)).map(
      (each) => `Against the new tester, ${doubtText(each)}`,
    ),
    ...(again === null
      ? [
          "No new tester was trained: the old one knows the old target, so that its failures say little of what is left.",
        ]
      : []),
  ];
}

const doubtText = ({ about, reason }: Doubt): string =>
  `${about === "figures" ? "no verdict" : "doubtful"}: ${visible(reason)}.`;
