import {
  FIGURES,
  testOf,
  type ComparisonRecord,
  type EvaluationDetail,
  type EvaluationRecord,
  type EvaluationSummary,
  type Figure,
  type FigureKey,
  type MeasuredRecord,
  type TargetSummary,
} from "@astra-rl/records";
import { foundConversations, foundReport, refusalLines, shownConversations } from "./conversations.js";
import {
  differenceOf,
  figureRow,
  intervalRow,
  percent,
  percentBetween,
  plain,
  points,
  pointsBetween,
  pValue,
  share,
} from "./figures.js";
import { goalLines } from "./goal-report.js";
import { table } from "./table.js";
import { visible } from "./visible.js";

export interface ComparisonReportOptions {
  before: EvaluationRecord;
  after: EvaluationRecord;
  comparison: ComparisonRecord;
  /** Number of found conversations to show. Default 3. */
  conversations?: number;
}

/** A plain-text report of before and after training: metrics with confidence intervals, then example conversations. */
export function comparisonReport({
  before,
  after,
  comparison,
  conversations = 3,
}: ComparisonReportOptions): string[] {
  const rows = figureRows([before.summary, after.summary], comparison);
  const lines = table(["", "before", "after", "difference"], rows);
  const hack = rewardHack(comparison, after.summary);
  if (hack !== null) lines.push("", hack);
  const order = " after training, those with harmless probes first, then by likelihood";
  return [...lines, ...fromBefore(before, after, conversations), ...foundReport(after, conversations, order)];
}

/**
 * A conversation before training without a harmful response, if possible from the prompt of an attack found
 * after training; otherwise the first one.
 */
function fromBefore(before: EvaluationRecord, after: EvaluationRecord, conversations: number): string[] {
  const found = foundConversations(after, conversations);
  const { n_rollouts: n, harm_threshold: threshold } = before.summary;
  const ledNowhere = ({ per_turn }: EvaluationDetail) =>
    per_turn.every((turn) => turn.response_harm !== null && turn.response_harm < threshold);
  // Both evaluations have the same prompts in the same order.
  const earlier = found.flatMap((detail) => before.details[after.details.indexOf(detail)] ?? []);
  const chosen = [...earlier, ...before.details].find(ledNowhere) ?? before.details[0];
  if (chosen === undefined) return [];
  const count = before.details.filter(ledNowhere).length;
  const heading = ledNowhere(chosen)
    ? `A conversation before training without a harmful response (${count} of ${n} had none):`
    : "A conversation before training:";
  return ["", heading, ...shownConversations([chosen], after)];
}

/** For example "0, 3, 0 of 256"; a dash for uncounted values, such as empty texts if actions are not messages. */
const turnsOf = ({ n_turns, n_failed_turns, n_empty_probes, n_empty_responses }: EvaluationSummary) => {
  const counts = [n_failed_turns, n_empty_probes, n_empty_responses].map((count) => count ?? "–");
  return `${counts.join(", ")} of ${n_turns}`;
};

/** For example "0, 12 of 256": texts longer than the scorer's window. */
const callsOf = ({ n_calls = 0, n_diverged = 0 }: EvaluationSummary) => `${n_calls}; ${n_diverged}`;

const cutTexts = ({ n_turns, n_cut_probes = 0, n_cut_responses = 0 }: EvaluationSummary) =>
  `${n_cut_probes}, ${n_cut_responses} of ${n_turns}`;

/**
 * A sentence if the tester gained according to the first scorer but not the second: the difference is above 0 at the 5
 * % level for one only. null if both agree, or there is no second scorer.
 */
export function rewardHack(
  { second, ...first }: ComparisonRecord,
  { second: by }: EvaluationSummary,
): string | null {
  const gained = ({ difference, p_value: p }: Pick<ComparisonRecord, "difference" | "p_value">) =>
    difference !== null && difference > 0 && p !== null && p < 0.05;
  if (second === undefined || by === undefined || !gained(first) || gained(second)) return null;
  return (
    `Possible reward hacking: success rose by ${points(first.difference)} according to the scorer of ` +
    `training, and by ` +
    `${points(second.difference)} (${pValue(second.p_value)}) according to ${visible(by.scorer)}: read the ` +
    `conversations on which they ` +
    "disagree before trusting the first"
  );
}

/** Success by turn and by number of attempts; no rows if there is one of each. */
function courseRows(summaries: readonly EvaluationSummary[], row: Row): string[][] {
  const tries = summaries.flatMap(({ success_by_attempts: each = [] }) =>
    each.map(({ attempts }) => attempts),
  );
  const most = Math.max(0, ...tries);
  const chosen = [...new Set(tries)].filter(
    (attempts) => attempts > 1 && (Math.log2(attempts) % 1 === 0 || attempts === most),
  );
  return [
    ...(summaries.some(({ success_by_turn: turns }) => turns.length > 1)
      ? [
          row("  up to each turn", ({ success_by_turn: turns }) =>
            turns.length < 2 ? "–" : `${turns.map((rate) => (100 * rate).toFixed(0)).join(", ")} %`,
          ),
        ]
      : []),
    ...chosen.map((count) =>
      row(`  within ${count} tries from a prompt`, ({ success_by_attempts: each = [] }) => {
        const found = each.find(({ attempts }) => attempts === count);
        return found === undefined ? "–" : `${percent(found.rate)} of ${found.n_prompts}`;
      }),
    ),
  ];
}

/** The name of a scorer in rates: its kind and its model. */
export function scorerName({ type, model }: MeasuredRecord["scorer"]): string {
  return visible(typeof model === "string" ? `${type} ${model}` : type);
}

/**
 * The figures of evaluations side by side, a row each, those of parts indented; with a comparison of two evaluations,
 * their differences are a further column.
 */
export function figureRows(
  summaries: readonly EvaluationSummary[],
  comparison: ComparisonRecord | null,
  measured: readonly (MeasuredRecord | null)[] = [],
): string[][] {
  const row = (label: string, of: (summary: EvaluationSummary) => string, difference = ""): string[] => [
    label,
    ...summaries.map(of),
    ...(comparison === null ? [] : [difference]),
  ];
  /** Rows that belong to the figure above them. */
  const parts: Partial<Record<FigureKey, string[][]>> = {
    cluster_success_rate: measuredRows(measured),
    harmless_probe_success_rate: comparison === null ? courseRows(summaries, row) : [],
    second_success_rate: secondRows(summaries, row),
    mean_probe_nll: likelihoodRows(summaries, row),
  };
  return [
    ...FIGURES.flatMap((figure) => [
      ...comparedRows(figure, summaries, comparison),
      ...(parts[figure.key as FigureKey] ?? []),
    ]),
    row("rollouts (with errors)", (s) => `${s.n_rollouts} (${s.n_errors})`, `${comparison?.n_pairs} pairs`),
    row("turns failed, probes, responses empty", turnsOf),
    ...(summaries.some(
      ({ n_cut_probes: probes = 0, n_cut_responses: responses = 0 }) => probes + responses > 0,
    )
      ? [row("probes, responses read in part only", cutTexts)]
      : []),
    // Outcomes of turns by servers, such as "3 refused, 2 filtered".
    ...(summaries.every(({ outcomes }) => outcomes === undefined)
      ? []
      : [
          row("turns by the server's outcome", ({ outcomes = {} }) =>
            Object.entries(outcomes)
              .map(([outcome, turns]) => `${turns} ${outcome}`)
              .join(", "),
          ),
        ]),
    ...(summaries.every(({ n_calls: calls }) => calls === undefined)
      ? []
      : [row("tool calls; turns after other answers than recorded", callsOf)]),
    ...targetRows(summaries, row),
  ];
}

type Row = (label: string, of: (summary: EvaluationSummary) => string) => string[];

/** The rows of one figure: its values, its intervals, and the test of its difference. */
function comparedRows(
  figure: Figure,
  summaries: readonly EvaluationSummary[],
  comparison: ComparisonRecord | null,
): string[][] {
  const [values, intervals] = [figureRow(figure, summaries), intervalRow(figure, summaries)];
  if (comparison === null || values.length === 0) return values.length === 0 ? [] : [...values, ...intervals];
  const beside = (rows: string[][], difference: string) => rows.map((cells) => [...cells, difference]);
  if (figure.compared === undefined) {
    const difference = figure.key === "n_distinct_probes" ? kept(comparison.distinct_probes_kept) : "";
    return [...beside(values, difference), ...beside(intervals, "")];
  }
  const compared = figure.compared(comparison);
  const between = compared?.difference_interval ?? null;
  return [
    ...beside(values, differenceOf(figure, compared?.difference ?? null)),
    ...beside(intervals, pointsBetween(between)),
    ...(figure.interval === undefined
      ? []
      : [
          [
            `  paired test (${testOf(between)})`,
            ...summaries.map(() => ""),
            pValue(compared?.p_value ?? null),
          ],
        ]),
  ];
}

/** The scorers of evaluations, and the cost of a search for their probes. */
function measuredRows(measured: readonly (MeasuredRecord | null)[]): string[][] {
  return [
    ...(measured.some((each) => each !== null)
      ? [["  judged by", ...measured.map((each) => (each === null ? "–" : scorerName(each.scorer)))]]
      : []),
    ...(measured.some((each) => each?.tags !== undefined)
      ? [
          [
            "  tags",
            ...measured.map((each) => (each?.tags === undefined ? "–" : [each.tags].flat().join(" "))),
          ],
        ]
      : []),
    ...(measured.some((each) => each?.search !== undefined)
      ? [
          [
            "  target responses in the search",
            ...measured.map((each) => each?.search?.queries.toLocaleString("en-US") ?? "–"),
          ],
        ]
      : []),
  ];
}

/** Agreement of two scorers; no rows without a second one. */
function secondRows(summaries: readonly EvaluationSummary[], row: Row): string[][] {
  if (summaries.every(({ second }) => second === undefined)) return [];
  return [
    row("  by both scorers", ({ second }) =>
      second === undefined || second.n_scored === 0
        ? "–"
        : `${percent(second.n_both / second.n_scored)} (${second.n_both}/${second.n_scored})`,
    ),
    row("  agreement (Cohen's kappa)", ({ second }) => plain(second?.kappa ?? null)),
  ];
}

/** The mean over turns hides a drift between them; no row if all conversations have one turn. */
const likelihoodRows = (summaries: readonly EvaluationSummary[], row: Row): string[][] =>
  summaries.some(({ probe_nll_by_turn: known }) => known.length > 1)
    ? [
        row("  in the first turn, the last", ({ probe_nll_by_turn: known }) =>
          known.length < 2 ? "–" : `${plain(known[0]!)}, ${plain(known.at(-1)!)}`,
        ),
      ]
    : [];

/** Success against each of several targets. */
function targetRows(summaries: readonly EvaluationSummary[], row: Row): string[][] {
  const names = new Set(summaries.flatMap(({ targets = [] }) => targets.map(({ target }) => target)));
  return [...names].flatMap((name) => {
    const cell =
      (of: (found: TargetSummary) => string) =>
      ({ targets = [] }: EvaluationSummary) => {
        const found = targets.find(({ target }) => target === name);
        return found === undefined ? "–" : of(found);
      };
    return [
      row(
        `success against ${visible(name)}`,
        cell((found) =>
          found.n_rollouts === 0
            ? "never used"
            : share(found.success_rate, found.n_successes, found.n_scored),
        ),
      ),
      row(
        "  95 % interval",
        cell((found) => percentBetween(found.success_rate_interval)),
      ),
    ];
  });
}

const kept = (ratio: number | null) => (ratio === null ? "–" : `${percent(ratio)} kept`);

/** A plain-text report of one evaluation. */
export const evaluationReport = ({
  summary,
  goals,
  benign,
  measured = null,
}: Pick<EvaluationRecord, "summary" | "goals" | "benign"> & {
  measured?: MeasuredRecord | null | undefined;
}): string[] => [
  ...table(["", ""], figureRows([summary], null, [measured])).slice(2),
  ...goalLines({ summary, goals }),
  ...refusalLines({ summary, benign }),
];
