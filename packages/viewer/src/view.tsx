import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GraphEntry, ReportRecord, ViewList } from "@astra-rl/records";
import { Tick } from "./choice.js";
import { percent, plain, whole } from "./figures.js";
import { GraphSearch } from "./graph-search.js";
import { goTo, placeNow, usePlace } from "./place.js";
import { Page, Sections } from "./report.js";
import { eventsUrl, fetchEntries, fetchGraph, fetchReport, type RunChange } from "./server.js";
import { shown } from "./shown.js";
import { Table } from "./table.js";
import { Term } from "./terms.js";
import type { GraphSource } from "./trees.js";

/** The page of `astra-rl view`: the runs of a folder, and the records of the chosen ones, updated live. */
export function View() {
  const place = usePlace();
  const [list, setList] = useState<ViewList | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isLost, setLost] = useState(false);
  const newest = list?.runs[0]?.id;
  const asked = place.getAll("run");
  const files = place.getAll("file");
  // The list is sorted by change; the selection must not change to another run by itself.
  const first = useRef<string | undefined>(undefined);
  first.current ??= newest;
  const runs =
    asked.length === 0 && files.length === 0 && first.current !== undefined ? [first.current] : asked;
  const { report, sources } = useRuns(runs, files, list !== null, { setList, setProblem, setLost });
  return (
    <Page
      kind="ASTRA-RL"
      title={list === null ? "Runs" : `Runs in ${shown(list.folder)}`}
      footer="Read from this machine's files. Texts were written by language models."
    >
      {[problem, isLost ? LOST : null].map(
        (said) =>
          said !== null && (
            <p class="no-verdict" role="alert">
              {shown(said)}
            </p>
          ),
      )}
      {list !== null && <RunTable list={list} chosen={runs} files={files} />}
      {report !== null && (report.runs.length > 0 || report.evaluations.length > 0) && (
        <Sections report={report} sources={sources}>
          {sources.length > 0 && <GraphSearch runs={runs} />}
        </Sections>
      )}
    </Page>
  );
}

const LOST = "The server does not answer; is astra-rl view still running?";

interface Setters {
  setList: (list: ViewList) => void;
  /** What cannot be shown, and why. */
  setProblem: (problem: string | null) => void;
  /** Whether the server has stopped. */
  setLost: (isLost: boolean) => void;
}

/** The records of the chosen runs, kept up to date by the server's events. */
function useRuns(
  runs: readonly string[],
  files: readonly string[],
  hasList: boolean,
  { setList, setProblem, setLost }: Setters,
): { report: ReportRecord | null; sources: GraphSource[] } {
  const [report, setReport] = useState<ReportRecord | null>(null);
  const [entries, setEntries] = useState<ReadonlyMap<string, GraphEntry[]>>(new Map());
  const key = JSON.stringify([runs, files]);
  const current = useRef(key);
  current.current = key;
  const known = useRef(entries);
  known.current = entries;

  const load = useCallback(async () => {
    try {
      const loaded = await fetchReport(runs, files);
      if (current.current !== key) return null;
      setReport(loaded);
      setProblem(null);
      return loaded;
    } catch (error) {
      if (current.current === key) setProblem((error as Error).message);
      return null;
    }
  }, [key]);

  const loadEntries = useCallback(
    async (run: string, isReset = false) => {
      const had = isReset ? [] : (known.current.get(run) ?? []);
      const told = await fetchEntries(run, had.length);
      setEntries((all) =>
        new Map(all).set(run, [...(all.get(run) ?? []).slice(0, told.from), ...told.entries]),
      );
    },
    [key],
  );

  useEffect(() => {
    let events: EventSource | null = null;
    let isOver = false;
    const start = (loaded: ReportRecord | null) => {
      if (isOver) return;
      const since = runs.map((_, index) => loaded?.runs[index]?.metrics.at(-1)?.step ?? 0);
      events = new EventSource(eventsUrl(loaded === null ? [] : runs, since));
      events.addEventListener("list", ({ data }: MessageEvent<string>) =>
        setList(JSON.parse(data) as ViewList),
      );
      events.addEventListener("change", ({ data }: MessageEvent<string>) => {
        const change = JSON.parse(data) as RunChange;
        if (change.isReset || change.evaluations) void load();
        else if (change.metrics.length > 0) setReport((before) => before && withMetrics(before, change));
        if (change.graphs || change.isReset) void loadEntries(change.run, change.isReset).catch(() => {});
      });
      events.addEventListener("open", () => setLost(false));
      events.addEventListener("error", () => setLost(true));
    };
    // The list is loaded first: it determines which run is shown if the address names none.
    if (runs.length === 0 && files.length === 0) start(null);
    else {
      void load().then(start);
      for (const run of runs) void loadEntries(run).catch(() => {});
    }
    return () => {
      isOver = true;
      events?.close();
    };
  }, [key, hasList]);

  const sources = useMemo(
    () =>
      runs.map((run): GraphSource => {
        const of = entries.get(run) ?? [];
        return { run, entries: of, total: of.length, load: (index) => fetchGraph(run, index) };
      }),
    [key, entries],
  );
  return { report, sources };
}

function withMetrics(report: ReportRecord, { run, metrics }: RunChange): ReportRecord {
  const runs = report.runs.map((each) => {
    if (each.label !== run) return each;
    // The browser may have reconnected, and received records again.
    const last = each.metrics.at(-1)?.step ?? 0;
    return { ...each, metrics: [...each.metrics, ...metrics.filter(({ step }) => step > last)] };
  });
  return { ...report, runs };
}

/** Columns of the table of runs, after the run. */
const COLUMNS = [
  "state",
  "steps",
  "success, harmless probes",
  "success",
  "each cluster once",
  "NLL",
  "algorithm",
  "seed",
];

/** All runs; the chosen ones are overlaid below. */
function RunTable({
  list,
  chosen,
  files,
}: {
  list: ViewList;
  chosen: readonly string[];
  files: readonly string[];
}) {
  const [wanted, setWanted] = useState("");
  const query = wanted.trim().toLowerCase();
  const matching = list.runs.filter((run) =>
    [run.id, run.tester, run.target, run.algorithm, run.state].some((text) =>
      text?.toLowerCase().includes(query),
    ),
  );
  const choose = (name: "run" | "file", values: readonly string[]) => {
    const place = placeNow();
    // Without a choice in the address, the newest run is shown.
    for (const key of ["e", "c", "r", "g", "n", name]) place.delete(key);
    if (name === "file" && !place.has("run")) for (const run of chosen) place.append("run", run);
    for (const value of values) place.append(name, value);
    location.hash = place.toString();
  };
  const flip = (values: readonly string[], value: string) =>
    values.includes(value) ? values.filter((other) => other !== value) : [...values, value];
  if (list.runs.length === 0 && list.evaluations.length === 0) {
    return <p class="note">There are no runs or evaluations here yet; they appear as soon as they start.</p>;
  }
  return (
    <section aria-label="Runs">
      {list.runs.length > 8 && (
        <form class="controls" onSubmit={(event) => event.preventDefault()}>
          <label>
            Filter
            <input
              type="search"
              value={wanted}
              placeholder="by folder, model, algorithm or state"
              onInput={(event) => setWanted(event.currentTarget.value)}
            />
          </label>
        </form>
      )}
      <Table
        label="Table of runs"
        kind="runs"
        headings={["run", ...COLUMNS.map((name) => (name === "NLL" ? <Term name={name} /> : name))]}
        labels={COLUMNS}
        rows={matching.map((run) => ({
          key: run.id,
          isChosen: chosen.includes(run.id),
          name: (
            <Tick
              kind="run-choice"
              name={shown(run.id)}
              checked={chosen.includes(run.id)}
              onChange={() => choose("run", flip(chosen, run.id))}
            />
          ),
          cells: [
            <span class={`state ${run.state}`}>{run.state}</span>,
            `${whole(run.steps)}${run.planned === null ? "" : ` of ${whole(run.planned)}`}`,
            run.hasVerdict ? percent(run.harmless) : "no verdict",
            run.hasVerdict ? percent(run.success) : "no verdict",
            run.hasVerdict ? percent(run.clusters) : "no verdict",
            plain(run.nll),
            shown(run.algorithm ?? "–"),
            whole(run.seed),
          ],
        }))}
      />
      {list.evaluations.length > 0 && (
        <fieldset class="files">
          <legend>Evaluations outside of runs</legend>
          {list.evaluations.map((file) => (
            <Tick
              key={file}
              kind="run-choice"
              name={shown(file)}
              checked={files.includes(file)}
              onChange={() => choose("file", flip(files, file))}
            />
          ))}
        </fieldset>
      )}
      {chosen.length + files.length > 1 && (
        <p class="note">
          {chosen.length + files.length} chosen; the last evaluation is compared with the first that is like
          it.{" "}
          <button
            type="button"
            class="small"
            onClick={() => goTo({ run: null, file: null, e: null, c: null })}
          >
            Show the newest only
          </button>
        </p>
      )}
    </section>
  );
}
