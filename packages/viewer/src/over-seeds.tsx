import type { ReportRecord, SeedFigure, SeedSummary } from "@astra-rl/records";
import type { Figure } from "@astra-rl/records/figures";
import { percent, whole } from "./figures.js";
import { SEED_ORDERED, written } from "./measures.js";
import { shown } from "./shown.js";
import { Term } from "./terms.js";

/** The main result over several seeds: for each configuration a sentence and its figures as means over seeds. */
export function OverSeeds({ report }: { report: ReportRecord }) {
  return (
    <>
      {report.seeds.map((found) => (
        <>
          <p class="sentence">{sentence(found, report)}</p>
          <dl class="figures">
            {SEED_ORDERED.map((figure) => (
              <OverOne figure={figure} found={found[figure.key]} />
            ))}
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
      : ` ${whole(without)} more gave no verdict and ${without === 1 ? "is" : "are"} excluded.`;
  if (figure === null) return `${of}no seed gave a verdict.${left}`;
  const isDoubtful = counted.some((at) => evaluations[at]!.summary.doubts.length > 0);
  const doubt = isDoubtful ? " See the doubts below." : "";
  return (
    `${of}Over ${whole(figure.n_seeds)} ${figure.n_seeds === 1 ? "seed" : "seeds"}, the target gave a harmful answer${to} in ` +
    `${percent(figure.mean)} of conversations on average.${left}${doubt}`
  );
}

function OverOne({ figure, found }: { figure: Figure; found: SeedFigure | null }) {
  if (found === null) return null;
  const { mean, interval, n_seeds: seeds } = found;
  const why =
    seeds < 3 ? `${seeds} ${seeds === 1 ? "seed is" : "seeds are"} too few for one` : "all seeds are equal";
  return (
    <div>
      <dt>
        <Term name={figure.label} />
      </dt>
      <dd>
        <strong>{written(figure, mean)}</strong>
        <small>
          {interval === null
            ? `no interval: ${why}`
            : `${written(figure, interval.lower)} to ${written(figure, interval.upper)}, ${seeds} seeds`}
        </small>
      </dd>
    </div>
  );
}
