import type { ReportRecord, ReportRun } from "astra-rl/records";
import { Conversations } from "./conversations.js";
import { Curves } from "./curves.js";
import { Facts, titleOf } from "./facts.js";
import { NoVerdict, Outcome } from "./outcome.js";
import { Trees } from "./trees.js";
import { shown } from "./shown.js";

/** The whole page. */
export function Report({ report }: { report: ReportRecord }) {
  const { runs, evaluations } = report;
  const several = runs.length > 1;
  const named = (run: ReportRun, text: string) => (several ? `${text}: ${shown(run.label)}` : text);
  return (
    <>
      <a class="skip" href="#outcome">
        Skip to the result
      </a>
      <header>
        <p class="kind">ASTRA-RL report</p>
        <h1>{titleOf(report)}</h1>
        <Facts report={report} />
      </header>
      <main>
        {runs.map(({ label, doubts = [] }) => (
          <NoVerdict of={label} doubts={doubts} />
        ))}
        {evaluations.length > 0 && <Outcome report={report} />}
        {runs.map((run) => run.metrics.length > 0 && <Curves run={run} title={named(run, "Training")} />)}
        {evaluations.some(({ details }) => details.length > 0) && <Conversations evaluations={evaluations} />}
        {runs.map(
          (run) => run.graphs.length > 0 && <Trees run={run} title={named(run, "Training graphs")} />,
        )}
      </main>
      <footer>
        This file holds everything it shows and reaches nothing. Texts were written by language models.
      </footer>
    </>
  );
}
