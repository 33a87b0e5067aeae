import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { ReportRecord } from "@astra-rl/records";
import { Clusters } from "./clusters.js";
import { Conversations } from "./conversations.js";
import { Curves } from "./curves.js";
import { Differences, Facts } from "./facts.js";
import { titleOf } from "./names.js";
import { Finding } from "./finding.js";
import { Goals } from "./goals.js";
import { NoVerdict, Outcome } from "./outcome.js";
import { Revealing } from "./revealed.js";
import { Tips } from "./terms.js";
import { heldGraphs, Trees, type GraphSource } from "./trees.js";

/** The page of a report that holds all its records. */
export function Report({ report }: { report: ReportRecord }) {
  const sources = useMemo(() => report.runs.map(heldGraphs), [report]);
  return (
    <Page
      kind="ASTRA-RL report"
      title={titleOf(report)}
      footer="This file contains all its data and makes no requests. Texts were written by language models."
    >
      <Sections report={report} sources={sources} />
    </Page>
  );
}

/** The frame of a page. */
export function Page({
  kind,
  title,
  footer,
  children,
}: {
  kind: string;
  title: string;
  footer: string;
  children: ComponentChildren;
}) {
  return (
    <>
      <a class="skip" href="#finding">
        Skip to the finding
      </a>
      <header>
        <p class="kind">{kind}</p>
        <h1>{title}</h1>
      </header>
      <main>{children}</main>
      <footer>{footer}</footer>
      <Tips />
    </>
  );
}

/** Everything about runs and evaluations; the main result first, settings last. */
export function Sections({
  report,
  sources,
  children,
}: {
  report: ReportRecord;
  sources: readonly GraphSource[];
  /** Between the curves and the conversations. */
  children?: ComponentChildren;
}) {
  const { runs, evaluations, comparison } = report;
  const last = comparison?.after ?? evaluations.length - 1;
  const withGraphs = sources.filter(({ entries }) => entries.length > 0);
  return (
    <Revealing>
      {runs.map(({ label, doubts }) => (
        <NoVerdict of={label} doubts={doubts} />
      ))}
      <Finding report={report} />
      {evaluations.length > 0 && <Outcome report={report} />}
      {evaluations[last] !== undefined && <Goals evaluation={evaluations[last]} />}
      {runs.length > 1 && <Differences report={report} />}
      {runs.some(({ metrics }) => metrics.length > 0) && <Curves report={report} />}
      {children}
      {evaluations[last] !== undefined && <Clusters evaluation={evaluations[last]} index={last} />}
      {evaluations.some(({ details }) => details.length > 0) && <Conversations evaluations={evaluations} />}
      {withGraphs.length > 0 && <Trees sources={withGraphs} />}
      <Facts report={report} />
    </Revealing>
  );
}
