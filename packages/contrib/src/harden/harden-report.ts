import {
  doubtsOfEvaluation,
  figureOf,
  type ComparisonRecord,
  type Doubt,
  type EvaluationRecord,
  type FigureKey,
} from "@astra-rl/records";
import { figureRow, intervalRow, plain, points, pValue, signed, table, visible } from "@astra-rl/report";

/** The results of hardening a target. */
export interface Hardened {
  /** Different attacks that it was trained on. */
  found: number;
  /** The tester against the target before and after, on prompts that neither was trained on. */
  before: EvaluationRecord;
  after: EvaluationRecord;
  comparison: ComparisonRecord;
  /** A new tester, trained against the hardened target; null if there is none. */
  again: EvaluationRecord | null;
  /** Perplexity of the target's own harmless answers; null if there are none. */
  perplexityBefore: number | null;
  perplexityAfter: number | null;
  nControls: number;
}

const SHOWN: readonly FigureKey[] = [
  "success_rate",
  "cluster_success_rate",
  "mean_response_harm",
  "n_distinct_probes",
  "over_refusal_rate",
];

/** As lines of a terminal: success of the same tester and of a new one, and side effects. */
export function hardenReport(result: Hardened): string[] {
  const { before, after, again, comparison, perplexityBefore, perplexityAfter, nControls } = result;
  const columns = [before.summary, after.summary, ...(again === null ? [] : [again.summary])];
  const change =
    perplexityBefore === null || perplexityAfter === null ? null : perplexityAfter / perplexityBefore - 1;
  return [
    ...table(
      ["", "before", "after", ...(again === null ? [] : ["new tester"])],
      SHOWN.flatMap((key) => {
        const values = figureRow(figureOf(key), columns);
        return values.length === 0 ? [] : [...values, ...intervalRow(figureOf(key), columns)];
      }),
    ),
    "",
    `The same tester: ${points(comparison.difference)} (${pValue(comparison.p_value)}).`,
    ...(comparison.over_refusal === undefined
      ? []
      : [
          `Over-refusal: ${points(comparison.over_refusal.difference)} (${pValue(comparison.over_refusal.p_value)}) on ` +
            `${comparison.over_refusal.n_pairs} benign prompts.`,
        ]),
    `Harmless behaviour: the perplexity of ${nControls} of the target's own harmless answers went from ` +
      `${plain(perplexityBefore)} to ${plain(perplexityAfter)} (${change === null ? "–" : `${signed(100 * change, 1)} %`}).`,
    // Few distinct probes, or empty answers, are not evidence of harmlessness.
    ...doubtsOfEvaluation(after.summary).map((each) => `Against the same tester, ${doubtText(each)}`),
    ...(again === null ? [] : doubtsOfEvaluation(again.summary)).map(
      (each) => `Against the new tester, ${doubtText(each)}`,
    ),
    ...(again === null
      ? [
          "No new tester was trained: the old one was trained against the old target, so its failures say " +
            "little about the remaining vulnerability.",
        ]
      : []),
  ];
}

const doubtText = ({ about, reason }: Doubt): string =>
  `${about === "figures" ? "no verdict" : "doubtful"}: ${visible(reason)}.`;
