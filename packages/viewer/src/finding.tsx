import type { EvaluationSummary, ReportEvaluation, ReportRecord } from "@astra-rl/records";
import { figureOf, type Figure } from "@astra-rl/records/figures";
import { Talk } from "./conversations.js";
import { Measured } from "./facts.js";
import { percent, plain, pValue, signed, whole } from "./figures.js";
import { findConversations, knowsHarmlessProbes } from "./found.js";
import { Interval, Intervals } from "./intervals.js";
import { HEADLINE, knownRates } from "./measures.js";
import { OverSeeds } from "./over-seeds.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

/** The main result: a sentence, three figures, and the likeliest attack. */
export function Finding({ report }: { report: ReportRecord }) {
  const { evaluations, comparison } = report;
  const last = comparison === null ? evaluations.at(-1) : evaluations[comparison.after];
  if (last === undefined) return <Underway report={report} />;
  // With other doubts the figures are valid; the doubts are shown below.
  const saysNothing = last.summary.doubts.some(({ about }) => about === "figures");
  const [rate] = knownRates([last.summary]);
  const at = evaluations.indexOf(last);
  const before = comparison === null ? undefined : evaluations[comparison.before];
  // With several seeds, a single one is not the headline.
  const isOfSeeds = report.seeds.some(({ runs }) => runs.some((run) => report.runs[run]!.label === last.run));
  return (
    <section id="finding" class="finding" aria-labelledby="finding-title">
      <h2 id="finding-title" class="visually-hidden">
        The finding
      </h2>
      <Measured report={report} of={last} />
      {isOfSeeds ? (
        <OverSeeds report={report} />
      ) : (
        <>
          {!saysNothing && rate !== undefined && (
            <p class="sentence">{sentence(rate, last, before, comparison)}</p>
          )}
          <Figures rate={rate} last={last.summary} before={before?.summary} />
        </>
      )}
      <Intervals report={report} />
      <BestAttack evaluation={last} index={at} />
    </section>
  );
}

function sentence(
  rate: Figure,
  { label, summary }: ReportEvaluation,
  before: ReportEvaluation | undefined,
  comparison: ReportRecord["comparison"],
): string {
  const isHarmless = rate.key === HEADLINE.key;
  const n = rate.count?.(summary)?.whole;
  const what = `the target gave a harmful answer${isHarmless ? " to harmless probes" : ""}`;
  const share = `In ${percent(rate.value(summary))} of ${whole(n)} conversations (${shown(label)})`;
  const compared = comparison === null ? null : (rate.compared?.(comparison.record) ?? null);
  if (before === undefined || compared === null) return `${share}, ${what}.`;
  return `${share}, ${what}; it was ${percent(rate.value(before.summary))} (${shown(before.label)}, ${pValue(compared.p_value)}).`;
}

function Figures({
  rate,
  last,
  before,
}: {
  rate: Figure | undefined;
  last: EvaluationSummary;
  before: EvaluationSummary | undefined;
}) {
  const interval = rate?.interval?.(last) ?? null;
  const likelihood = figureOf("mean_probe_nll");
  const [nll, nllBefore] = [likelihood.value(last), before === undefined ? null : likelihood.value(before)];
  const { diversity } = last;
  return (
    <dl class="figures">
      {rate !== undefined && (
        <div>
          <dt>
            <Term name={rate.label} />
          </dt>
          <dd>
            <strong>{percent(rate.value(last))}</strong>
            <Interval interval={interval} />
          </dd>
        </div>
      )}
      <div>
        <dt>
          <Term name={likelihood.label} />
        </dt>
        <dd>
          <strong>{plain(nll)}</strong>
          {nll !== null && nllBefore !== null && (
            <small>
              {signed(nll - nllBefore)}: {nll - nllBefore > 0 ? "less likely" : "likelier"} than before
            </small>
          )}
        </dd>
      </div>
      {diversity !== null && (
        <div>
          <dt>Different attacks</dt>
          <dd>
            <strong>{whole(diversity.n_clusters)}</strong>
            <small>clusters in {whole(diversity.n_attacks)} successes</small>
          </dd>
        </div>
      )}
    </dl>
  );
}

function BestAttack({ evaluation, index }: { evaluation: ReportEvaluation; index: number }) {
  const outcome = knowsHarmlessProbes(evaluation) ? "harmless-probes" : "harmful";
  const [best] = findConversations(evaluation, { outcome, order: "likely", query: "", once: true });
  if (best === undefined) return null;
  return (
    <div class="best">
      <h3>The likeliest attack</h3>
      <Talk conversation={best} threshold={evaluation.summary.harm_threshold} query="" evaluation={index} />
    </div>
  );
}

/** A run without an evaluation: its training metrics so far. */
function Underway({ report: { runs } }: { report: ReportRecord }) {
  const metrics = runs.flatMap((run) => run.metrics.slice(-1).map((last) => ({ run, last })));
  if (metrics.length === 0) return null;
  return (
    <section id="finding" class="finding" aria-label="The finding">
      {metrics.map(({ run, last }) => {
        const value = last["success/harmless_probe_rate"] ?? last["success/rate"];
        return (
          <p class="sentence">
            {runs.length > 1 && `${shown(run.label)}: `}
            step {whole(last.step)}
            {typeof value === "number" && `; ${percent(value)} of its trees have a harmful response`}. No
            evaluation yet.
          </p>
        );
      })}
    </section>
  );
}
