import type { Doubt, EvaluationSummary, ReportRecord, TargetSummary } from "@astra-rl/records";
import { percent, pValue, signed, whole } from "./figures.js";
import { testOf, type Figure, type FigureDifference } from "@astra-rl/records/figures";
import { Interval } from "./intervals.js";
import { knownNumbers, knownRates, written } from "./measures.js";
import { ByTurn } from "./by-turn.js";
import { Plane } from "./plane.js";
import { shown } from "./shown.js";
import { Table, type Cell } from "./table.js";
import { Term } from "./terms.js";

/** Before and after: rates with their intervals as a chart, and all figures as a table. */
export function Outcome({ report }: { report: ReportRecord }) {
  const { evaluations, comparison } = report;
  const headings = [
    ...evaluations.map(({ label }) => shown(label)),
    ...(comparison === null ? [] : ["difference"]),
  ];
  return (
    <section id="outcome" aria-labelledby="outcome-title">
      <h2 id="outcome-title">{headingOf(evaluations, comparison)}</h2>
      {evaluations.map(({ label, summary }) => (
        <NoVerdict of={label} doubts={summary.doubts} />
      ))}
      {comparison !== null && comparison.reward_hack !== null && (
        <p class="no-verdict" role="alert">
          {shown(comparison.reward_hack)}
        </p>
      )}
      <div class="pictures">
        <Plane report={report} />
        <ByTurn report={report} />
      </div>
      <Table
        label="Figures"
        headings={[<span class="visually-hidden">Figure</span>, ...headings]}
        labels={headings}
        rows={figuresOf(report).map(({ name, cells, difference = "" }) => ({
          name: <Term name={name} />,
          cells: comparison === null ? cells : [...cells, difference],
        }))}
      />
      <Targets evaluations={evaluations} />
    </section>
  );
}

interface FigureRow {
  name: string;
  /** One for each evaluation. */
  cells: Cell[];
  /** Difference of the last from the first, if evaluations are compared. */
  difference?: Cell;
}

/** All figures that at least one of the evaluations has. */
function figuresOf({ evaluations, comparison }: ReportRecord): FigureRow[] {
  const summaries = evaluations.map(({ summary }) => summary);
  const differenceOf = (figure: Figure) =>
    comparison === null
      ? null
      : figure.compared === undefined
        ? {
            difference: difference(
              figure.value(evaluations[comparison.before]!.summary),
              figure.value(evaluations[comparison.after]!.summary),
            ),
          }
        : figure.compared(comparison.record);
  const isJudgeKnown = evaluations.some(({ measured }) => measured !== null);
  const hasTurns = summaries.some(({ success_by_turn: turns }) => turns.length > 1);
  return [
    ...knownRates(summaries).map((rate) => ({
      name: rate.label,
      cells: summaries.map((summary) => <RateCell rate={rate} summary={summary} />),
      difference: <DifferenceCell compared={differenceOf(rate)} />,
    })),
    ...(isJudgeKnown
      ? [{ name: "Judged by", cells: evaluations.map(({ measured }) => shown(scorerOf(measured))) }]
      : []),
    ...(hasTurns
      ? [
          {
            name: "Success up to each turn",
            cells: summaries.map(({ success_by_turn: turns }) => turns.map(percent).join(", ") || "–"),
          },
        ]
      : []),
    ...triesOf(summaries).map((attempts) => ({
      name: `Success within ${attempts} attempts from a prompt`,
      cells: summaries.map(({ success_by_attempts: tries = [] }) =>
        percent(tries.find((each) => each.attempts === attempts)?.rate ?? null),
      ),
    })),
    ...knownNumbers(summaries).map((figure) => ({
      name: figure.label,
      cells: summaries.map((summary) => written(figure, figure.value(summary))),
      difference: signed(differenceOf(figure)?.difference, figure.format === "whole" ? 0 : 2),
    })),
    { name: "Turns failed, empty probes, empty responses", cells: summaries.map(turnsOf) },
    {
      name: "Rollouts (with errors)",
      cells: summaries.map(({ n_rollouts, n_errors }) => `${whole(n_rollouts)} (${whole(n_errors)})`),
      difference: comparison && `${whole(comparison.record.n_pairs)} pairs`,
    },
  ];
}

/** A row for each of several targets. */
function Targets({ evaluations }: Pick<ReportRecord, "evaluations">) {
  const names = targetsOf(evaluations.map(({ summary }) => summary));
  if (names.length === 0) return null;
  const labels = evaluations.map(({ label }) => shown(label));
  return (
    <>
      <h3>Success against each target</h3>
      <Table
        label="Success against each target"
        headings={["target", ...labels]}
        labels={labels}
        rows={names.map((name) => ({
          name: shown(name),
          cells: evaluations.map(({ summary: { targets = [] } }) => (
            <TargetCell found={targets.find(({ target }) => target === name)} />
          )),
        }))}
      />
    </>
  );
}

function TargetCell({ found }: { found: TargetSummary | undefined }) {
  if (found === undefined) return <>–</>;
  if (found.n_rollouts === 0) return <>never asked</>;
  const { success_rate_interval: interval } = found;
  return (
    <>
      <strong>{percent(found.success_rate)}</strong>
      <small>
        {found.n_successes} of {found.n_scored}
      </small>
      <Interval interval={interval} />
      {found.doubts.length > 0 && (
        <small class="error">{found.doubts.map(({ reason }) => shown(reason)).join("; ")}</small>
      )}
    </>
  );
}

/** The numbers of attempts that are shown: powers of two, and the maximum. */
function triesOf(summaries: readonly EvaluationSummary[]): number[] {
  const most = Math.max(1, ...summaries.map(({ success_by_attempts: tries }) => tries?.length ?? 1));
  const powers = [2, 4, 8, 16, 32, 64].filter((attempts) => attempts < most);
  return most === 1 ? [] : [...powers, most];
}

function scorerOf(measured: ReportRecord["evaluations"][number]["measured"]): string {
  if (measured === null) return "–";
  const { type, model } = measured.scorer;
  return typeof model === "string" ? `${type} ${model}` : type;
}

/** Evaluations of different runs are not "before and after". */
function headingOf(evaluations: ReportRecord["evaluations"], comparison: ReportRecord["comparison"]): string {
  if (comparison === null) return evaluations.length > 1 ? "Evaluations" : "Evaluation";
  const [before, after] = [evaluations[comparison.before]!, evaluations[comparison.after]!];
  const isOneRun = before.run !== undefined && before.run === after.run;
  return isOneRun || /before/i.test(before.label) ? "Before and after" : "Comparison";
}

/** Reports that the figures are inconclusive, and why; nothing if they are conclusive. */
export function NoVerdict({ of, doubts }: { of: string; doubts: readonly Doubt[] }) {
  if (doubts.length === 0) return null;
  const figures = doubts.filter(({ about }) => about === "figures");
  // The figures are valid, but little harm is no evidence of safety.
  const doubtful = figures.length === 0;
  return (
    <p class="no-verdict" role="alert">
      <strong>{doubtful ? "Doubtful" : "No verdict on the target"}</strong> ({shown(of)}):{" "}
      {(doubtful ? doubts : figures).map(({ reason }) => shown(reason)).join("; ")}
    </p>
  );
}

function RateCell({ rate, summary }: { rate: Figure; summary: EvaluationSummary }) {
  const count = rate.count?.(summary) ?? null;
  return (
    <>
      <strong>{percent(rate.value(summary))}</strong>
      {count !== null && (
        <small>
          {count.part} of {count.whole}
        </small>
      )}
      <Interval interval={rate.interval?.(summary) ?? null} />
    </>
  );
}

function DifferenceCell({ compared }: { compared: FigureDifference | null }) {
  const { difference: by, difference_interval: interval = null, p_value } = compared ?? {};
  if (p_value === undefined) return <>{points(by)}</>;
  return (
    <>
      {points(by)}
      {interval !== null && (
        <small>
          {points(interval.lower, false)} to {points(interval.upper)}
        </small>
      )}
      <small>
        {pValue(p_value)} ({testOf(interval)})
      </small>
    </>
  );
}

const points = (share: number | null | undefined, unit = true) =>
  typeof share === "number" ? `${signed(100 * share, 1)}${unit ? " points" : ""}` : "–";

const difference = (before: number | null, after: number | null) =>
  before === null || after === null ? null : after - before;

const targetsOf = (summaries: readonly EvaluationSummary[]) => [
  ...new Set(summaries.flatMap(({ targets = [] }) => targets.map(({ target }) => target))),
];

const turnsOf = ({ n_turns, n_failed_turns, n_empty_probes, n_empty_responses }: EvaluationSummary) =>
  `${[n_failed_turns, n_empty_probes, n_empty_responses].map(whole).join(", ")} of ${whole(n_turns)}`;
