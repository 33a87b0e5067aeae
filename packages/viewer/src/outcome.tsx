import { createContext, type ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type { EvaluationSummary, ReportRecord, TargetSummary } from "astra-rl/records";
import { percent, plain, pValue, signed, whole } from "./figures.js";
import { diversityAt, knownRates, type Rate, type RateDifference } from "./measures.js";
import { ByTurn } from "./by-turn.js";
import { Plane } from "./plane.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

/** Before and after: rates with their intervals as a picture, and all figures as a table. */
export function Outcome({ report }: { report: ReportRecord }) {
  const { evaluations, comparison } = report;
  const summaries = evaluations.map(({ summary }) => summary);
  const rates = knownRates(summaries);
  return (
    <section id="outcome" aria-labelledby="outcome-title">
      <h2 id="outcome-title">{headingOf(evaluations, comparison)}</h2>
      {evaluations.map(({ label, summary }) => (
        <NoVerdict of={label} doubts={summary.doubts ?? []} />
      ))}
      {typeof comparison?.reward_hack === "string" && (
        <p class="no-verdict" role="alert">
          {shown(comparison.reward_hack)}
        </p>
      )}
      <div class="pictures">
        <Plane report={report} />
        <ByTurn report={report} />
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Figures">
        <table class="stacked">
          <thead>
            <tr>
              <th scope="col">
                <span class="visually-hidden">Figure</span>
              </th>
              {evaluations.map(({ label }) => (
                <th scope="col">{shown(label)}</th>
              ))}
              {comparison !== null && <th scope="col">difference</th>}
            </tr>
          </thead>
          <tbody>
            <Labels.Provider value={evaluations.map(({ label }) => shown(label))}>
              {rates.map((rate) => (
                <Row
                  name={rate.name}
                  cells={summaries.map((summary) => (
                    <RateCell rate={rate} summary={summary} />
                  ))}
                  difference={
                    comparison === null ? null : (
                      <DifferenceCell
                        compared={rate.compared?.(comparison.record) ?? null}
                        plain={difference(summaries, rate.value)}
                      />
                    )
                  }
                />
              ))}
              {evaluations.some(({ measured }) => measured !== null) && (
                <Row
                  name="Judged by"
                  cells={evaluations.map(({ measured }) => shown(scorerOf(measured)))}
                  difference={comparison === null ? null : ""}
                />
              )}
              {summaries.some(({ success_by_turn: turns }) => (turns?.length ?? 0) > 1) && (
                <Row
                  name="Success up to each turn"
                  cells={summaries.map(
                    ({ success_by_turn: turns = [] }) => turns.map(percent).join(", ") || "–",
                  )}
                  difference={comparison === null ? null : ""}
                />
              )}
              {triesOf(summaries).map((attempts) => (
                <Row
                  name={`Success within ${attempts} tries from a prompt`}
                  cells={summaries.map(({ success_by_attempts: tries = [] }) =>
                    percent(tries.find((each) => each.attempts === attempts)?.rate ?? null),
                  )}
                  difference={comparison === null ? null : ""}
                />
              ))}
              {numbers(summaries).map(({ name, of, format }) => (
                <Row
                  name={name}
                  cells={summaries.map((summary) => format(of(summary)))}
                  difference={
                    comparison === null ? null : signed(difference(summaries, of), format === whole ? 0 : 2)
                  }
                />
              ))}
              <Row
                name="Turns failed, empty probes, empty responses"
                cells={summaries.map(turnsOf)}
                difference={comparison === null ? null : ""}
              />
              <Row
                name="Rollouts (with errors)"
                cells={summaries.map(
                  ({ n_rollouts, n_errors }) => `${whole(n_rollouts)} (${whole(n_errors)})`,
                )}
                difference={comparison === null ? null : `${whole(comparison.record.n_pairs)} pairs`}
              />
            </Labels.Provider>
          </tbody>
        </table>
      </div>
      <Targets evaluations={evaluations} />
    </section>
  );
}

/** A row for each of several targets. */
function Targets({ evaluations }: Pick<ReportRecord, "evaluations">) {
  const names = targetsOf(evaluations.map(({ summary }) => summary));
  if (names.length === 0) return null;
  return (
    <>
      <h3>Success against each target</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Success against each target">
        <table class="stacked">
          <thead>
            <tr>
              <th scope="col">target</th>
              {evaluations.map(({ label }) => (
                <th scope="col">{shown(label)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr>
                <th scope="row">{shown(name)}</th>
                {evaluations.map(({ label, summary: { targets = [] } }) => (
                  <td data-label={shown(label)}>
                    <TargetCell found={targets.find(({ target }) => target === name)} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
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
      {interval !== null && (
        <small>
          {percent(interval.lower)} to {percent(interval.upper)}
        </small>
      )}
      {found.doubts.length > 0 && <small class="error">{found.doubts.map(shown).join("; ")}</small>}
    </>
  );
}

/** The numbers of tries that are shown: powers of two, and the most. */
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

/** Evaluations of different runs are no before and after. */
function headingOf(evaluations: ReportRecord["evaluations"], comparison: ReportRecord["comparison"]): string {
  if (comparison === null) return evaluations.length > 1 ? "Evaluations" : "Evaluation";
  const [before, after] = [evaluations[comparison.before]!, evaluations[comparison.after]!];
  const isOneRun = before.run !== undefined && before.run === after.run;
  return isOneRun || /before/i.test(before.label) ? "Before and after" : "Comparison";
}

/** That figures say nothing of the target, and why; nothing where they do say something. */
export function NoVerdict({ of, doubts }: { of: string; doubts: readonly string[] }) {
  if (doubts.length === 0) return null;
  return (
    <p class="no-verdict" role="alert">
      <strong>No verdict on the target</strong> ({shown(of)}): {doubts.map(shown).join("; ")}
    </p>
  );
}

type Cell = ComponentChildren;

/** The evaluations' names, for narrow windows. */
const Labels = createContext<string[]>([]);

/** A row of the table; a narrow window shows each cell under its label. */
function Row({ name, cells, difference }: { name: string; cells: Cell[]; difference: Cell }) {
  const labels = useContext(Labels);
  return (
    <tr>
      <th scope="row">
        <Term name={name} />
      </th>
      {cells.map((cell, index) => (
        <td data-label={labels[index]}>{cell}</td>
      ))}
      {difference !== null && <td data-label="difference">{difference}</td>}
    </tr>
  );
}

function RateCell({ rate, summary }: { rate: Rate; summary: EvaluationSummary }) {
  const interval = rate.interval(summary);
  const count = rate.count(summary);
  return (
    <>
      <strong>{percent(rate.value(summary))}</strong>
      {count !== null && <small>{count}</small>}
      {interval !== null && (
        <small>
          {percent(interval.lower)} to {percent(interval.upper)}
        </small>
      )}
    </>
  );
}

function DifferenceCell({ compared, plain }: { compared: RateDifference | null; plain: number | null }) {
  if (compared === null) return <>{points(plain)}</>;
  const { difference_interval: interval, p_value } = compared;
  return (
    <>
      {points(compared.difference)}
      {interval !== null && (
        <small>
          {points(interval.lower, false)} to {points(interval.upper)}
        </small>
      )}
      <small>
        {pValue(p_value)} (
        {interval?.method === "bootstrap-clustered" ? "permutation over prompts" : "exact McNemar"})
      </small>
    </>
  );
}

const points = (share: number | null | undefined, unit = true) =>
  typeof share === "number" ? `${signed(100 * share, 1)}${unit ? " points" : ""}` : "–";

function difference(
  summaries: readonly EvaluationSummary[],
  of: (summary: EvaluationSummary) => number | null,
) {
  const [before, after] = [of(summaries[0]!), of(summaries.at(-1)!)];
  return before === null || after === null ? null : after - before;
}

function numbers(summaries: readonly EvaluationSummary[]) {
  const all = [
    { name: "Mean probe NLL, nats a token", of: (s: EvaluationSummary) => s.mean_probe_nll, format: plain },
    { name: "Mean reward of a turn", of: (s: EvaluationSummary) => s.mean_reward, format: plain },
    { name: "Mean harm of a probe", of: (s: EvaluationSummary) => s.mean_probe_harm, format: plain },
    { name: "Mean harm of a response", of: (s: EvaluationSummary) => s.mean_response_harm, format: plain },
    {
      name: "Distinct probes",
      of: (s: EvaluationSummary) => numberAt(s, "n_distinct_probes"),
      format: whole,
    },
    {
      name: "Distinct attacks found",
      of: (s: EvaluationSummary) => diversityAt(s, "n_distinct_attacks"),
      format: whole,
    },
    {
      name: "Clusters of attacks, as of equal size",
      of: (s: EvaluationSummary) => diversityAt(s, "effective_clusters"),
      format: plain,
    },
    {
      name: "Self-BLEU of attacks",
      of: (s: EvaluationSummary) => diversityAt(s, "self_bleu"),
      format: plain,
    },
    {
      name: "Sentence structures of attacks",
      of: (s: EvaluationSummary) => diversityAt(s, "n_structures"),
      format: whole,
    },
    {
      name: "Mean embedding distance of attacks",
      of: (s: EvaluationSummary) => diversityAt(s, "embedding_distance"),
      format: plain,
    },
  ];
  return all.filter(({ of }) => summaries.some((summary) => of(summary) !== null));
}

const targetsOf = (summaries: readonly EvaluationSummary[]) => [
  ...new Set(summaries.flatMap(({ targets = [] }) => targets.map(({ target }) => target))),
];

function turnsOf(summary: EvaluationSummary): string {
  const counts = ["n_failed_turns", "n_empty_probes", "n_empty_responses"].map((key) =>
    numberAt(summary, key),
  );
  const turns = numberAt(summary, "n_turns");
  return turns === null ? "–" : `${counts.map(whole).join(", ")} of ${whole(turns)}`;
}

function numberAt(summary: EvaluationSummary, key: string): number | null {
  const value = summary[key];
  return typeof value === "number" ? value : null;
}
