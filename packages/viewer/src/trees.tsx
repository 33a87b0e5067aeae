import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { GraphEntry, ReportGraph, ReportRun } from "@astra-rl/records";
import { Choice } from "./choice.js";
import { whole } from "./figures.js";
import { numberIn, usePlace } from "./place.js";
import { shown } from "./shown.js";
import { Tree } from "./tree-view.js";
import { placedNodes, worstResponse } from "./tree.js";
import { HARMFUL } from "./turn.js";

/** Source of the training graphs of a run: contained in a report, or loaded from a server. */
export interface GraphSource {
  run: string;
  entries: readonly GraphEntry[];
  /** Graphs of the run; a report may contain fewer. */
  total: number;
  load: (index: number) => ReportGraph | Promise<ReportGraph>;
}

/** The graphs in a report. */
export function heldGraphs({ label, graphs, graphs_total: total }: ReportRun): GraphSource {
  const entries = graphs.map((graph): GraphEntry => {
    const prompt = shown(graph.context);
    return {
      step: graph.step ?? null,
      prompt,
      worst: worstResponse(graph),
      nodes: placedNodes(graph).length,
    };
  });
  return { run: label, entries, total, load: (index) => graphs[index]! };
}

/** The training trees of runs, one at a time. */
export function Trees({ sources }: { sources: readonly GraphSource[] }) {
  const id = useId();
  const place = usePlace();
  const [run, setRun] = useState(0);
  const source = sources[run] ?? sources[0]!;
  const { entries, total } = source;
  const [wanted, setWanted] = useState<number | null>(null);
  const chosen = Math.min(wanted ?? entries.length - 1, entries.length - 1);
  const graph = useGraph(source, chosen);
  const steps = useMemo(() => [...new Set(entries.map(({ step }) => step ?? 0))], [entries]);
  const step = entries[chosen]?.step ?? 0;
  const ofStep = entries.flatMap((other, index) => ((other.step ?? 0) === step ? [index] : []));
  const section = useRef<HTMLElement>(null);
  // Target of a search or a link.
  const [linkedRun, linkedGraph, linkedNode] = [place.get("r"), numberIn(place, "g"), place.get("n") ?? ""];
  useEffect(() => {
    if (linkedGraph === null) return;
    setRun(
      Math.max(
        0,
        sources.findIndex((each) => each.run === linkedRun),
      ),
    );
    setWanted(linkedGraph);
    section.current?.scrollIntoView();
  }, [linkedRun, linkedGraph, linkedNode]);
  return (
    <section aria-labelledby={`${id}-title`} ref={section}>
      <h2 id={`${id}-title`}>Training graphs</h2>
      <p class="note">
        {entries.length === total
          ? `${whole(total)} training trees.`
          : `${whole(entries.length)} of the ${whole(total)} training trees, evenly spaced.`}{" "}
        In the tree: arrow keys move, Enter shows or blurs a harmful text. The best path has the highest total
        reward.
      </p>
      <div class="controls">
        {sources.length > 1 && (
          <Choice
            name="Run"
            value={run}
            options={sources.map(({ run: label }, index) => [index, shown(label)])}
            onChange={(index) => {
              setRun(index);
              setWanted(null);
            }}
          />
        )}
        <Choice
          name="Step"
          value={step}
          options={steps.map((each) => [each, each === 0 ? "not known" : whole(each)])}
          onChange={(each) => setWanted(entries.findIndex((entry) => (entry.step ?? 0) === each))}
        />
        <Choice
          name="Tree"
          isWide
          value={chosen}
          options={ofStep.map((index) => [index, nameOf(entries[index]!)])}
          onChange={setWanted}
        />
        <span class="buttons">
          <button type="button" disabled={chosen <= 0} onClick={() => setWanted(chosen - 1)}>
            Previous
          </button>
          <button type="button" disabled={chosen >= entries.length - 1} onClick={() => setWanted(chosen + 1)}>
            Next
          </button>
        </span>
      </div>
      {typeof graph === "string" && <p role="alert">{graph}</p>}
      {typeof graph === "object" && graph !== null && (
        <Tree
          key={`${source.run}-${chosen}`}
          graph={graph}
          at={linkedGraph === chosen && (linkedRun === null || linkedRun === source.run) ? linkedNode : ""}
        />
      )}
    </section>
  );
}

/** The graph, null while it is fetched, or why it cannot be shown. */
function useGraph(source: GraphSource, index: number): ReportGraph | string | null {
  const [loaded, setLoaded] = useState<{ of: string; graph: ReportGraph | string } | null>(null);
  const of = `${source.run} ${index}`;
  const held = useMemo(() => (index < 0 ? null : source.load(index)), [of]);
  useEffect(() => {
    if (!(held instanceof Promise)) return undefined;
    let isCurrent = true;
    void held
      .catch((error: unknown) => `This tree cannot be shown: ${String(error)}`)
      .then((graph) => isCurrent && setLoaded({ of, graph }));
    return () => {
      isCurrent = false;
    };
  }, [of]);
  if (!(held instanceof Promise)) return held;
  return loaded?.of === of ? loaded.graph : null;
}

function nameOf({ prompt, worst }: GraphEntry): string {
  const text = shown(prompt);
  const short = text.length > 60 ? `${text.slice(0, 59)}…` : text;
  return `${worst !== null && worst >= HARMFUL ? "◀ " : ""}${short}`;
}
