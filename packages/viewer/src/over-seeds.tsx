import type { ReportRecord, SeedFigure, SeedSummary } from "astra-rl/records";
import { percent, plain, whole } from "./figures.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

/** The finding of several seeds: for each configuration a sentence and its figures as means over seeds. */
export function OverSeeds({ report }: { report: ReportRecord }) {
  return (
    <>
      {report.seeds.map((found) => (
        <>
          <p class="sentence">{sentence(found, report)}</p>
          <dl class="figures">
            <Figure
              name="Success with harmless probes only"
              figure={found.harmless_probe_success_rate}
              show={percent}
            />
            <Figure name="Success" figure={found.success_rate} show={percent} />
            <Figure
              name="Success, each cluster of attacks once"
              figure={found.cluster_success_rate}
              show={percent}
            />
            <Figure name="Mean probe NLL, nats a token" figure={found.mean_probe_nll} show={plain} />
          </dl>
        </>
      ))}
    </>
  );
}

function sentence(found: SeedSummary, { evaluations }: ReportRecord): string {
  const { label, evaluations: counted, n_without_verdict: without } = found;
  const [figure, to] =
    found.harmless_probe_success_rate === null
      ? [found.success_rate, ""]
      : [found.harmless_probe_success_rate, " to harmless probes"];
  const of = label === "" ? "" : `${shown(label)}: `;
  const left =
    without === 0
      ? ""
      : ` ${whole(without)} more gave no verdict and ${without === 1 ? "is" : "are"} left out.`;
  if (figure === null) return `${of}no seed gave a verdict.${left}`;
  const isDoubtful = counted.some((at) => (evaluations[at]!.summary.doubts ?? []).length > 0);
  const doubt = isDoubtful ? " What is doubtful about it stands below." : "";
  return (
    `${of}Over ${whole(figure.n_seeds)} ${figure.n_seeds === 1 ? "seed" : "seeds"}, the target gave a harmful answer${to} in ` +
    `${percent(figure.mean)} of conversations on average.${left}${doubt}`
  );
}

function Figure({
  name,
  figure,
  show,
}: {
  name: string;
  figure: SeedFigure | null;
  show: (value: number) => string;
}) {
  if (figure === null) return null;
  const { mean, interval, n_seeds: seeds } = figure;
  const why =
    seeds < 3 ? `${seeds} ${seeds === 1 ? "seed is" : "seeds are"} too few for one` : "all seeds are equal";
  return (
    <div>
      <dt>
        <Term name={name} />
      </dt>
      <dd>
        <strong>{show(mean)}</strong>
        <small>
          {interval === null
            ? `no interval: ${why}`
            : `${show(interval.lower)} to ${show(interval.upper)}, ${seeds} seeds`}
        </small>
      </dd>
    </div>
  );
}
