import type { ReportEvaluation, ReportRecord, ReportRun } from "@astra-rl/records";
import { whole } from "./figures.js";
import { modelOf, roleOf, section, shortName, textOf, type Section } from "./names.js";
import { shown } from "./shown.js";
import { Table } from "./table.js";

/** The tested models, the scorer, and the threshold of harm: no rate is meaningful without these. */
export function Measured({ report, of }: { report: ReportRecord; of: ReportEvaluation }) {
  const configuration = report.runs.find(({ label }) => label === of.run)?.configuration ?? null;
  const scorer = (of.measured?.scorer as Section) ?? section(configuration, "scorer");
  const target = of.measured === null ? roleOf(configuration, "target") : shown(of.measured.target.model);
  const model = textOf(scorer?.["model"]);
  const judge = textOf(scorer?.["type"]);
  const facts: [string, string | null][] = [
    ["Target", target === null ? null : shortName(target)],
    ["Judged by", judge === null || model === null ? judge : `${judge} ${shortName(model)}`],
    ["Harmful from", judge === "none" ? null : String(of.summary.harm_threshold)],
  ];
  // The probes were chosen by their success: show the number of answers used for that.
  const search = of.measured?.search;
  if (search !== undefined) facts.push(["Target answers used by the search", whole(search.queries)]);
  return (
    <p class="measured">
      {facts.map(([name, value]) => (
        <span key={name}>
          {name} <strong>{value ?? "unknown"}</strong>
        </span>
      ))}
    </p>
  );
}

/** Options of a section other than its type, as "key value" words. */
function optionsOf(value: Section, leaveOut: readonly string[] = []): string {
  return Object.entries(value ?? {})
    .filter(([key, option]) => key !== "type" && !leaveOut.includes(key) && textOf(option) !== null)
    .map(([key, option]) => `${shown(key)} ${textOf(option)}`)
    .join(", ");
}

function kind(value: Section, leaveOut?: readonly string[]): string | null {
  if (value === undefined) return null;
  const name = textOf(value["type"] ?? value["preset"]);
  const options = optionsOf(value, ["preset", ...(leaveOut ?? [])]);
  const terms = Array.isArray(value["terms"])
    ? (value["terms"] as Section[]).map((term) => {
        const own = optionsOf(term, ["weight"]);
        return `${plainOr(term?.["weight"])} × ${textOf(term?.["type"]) ?? "?"}${own === "" ? "" : ` (${own})`}`;
      })
    : [];
  const sum = terms.join(" + ").replaceAll("+ -", "− ");
  return [name ?? (terms.length > 0 ? sum : null), options].filter(Boolean).join(": ") || null;
}

const plainOr = (value: unknown) => (typeof value === "number" ? String(value) : "?");

function factsOf({ configuration, metrics, run }: ReportRun): [string, string][] {
  const of = (name: string) => section(configuration, name);
  const training = of("training");
  const models = of("models");
  const session = run?.sessions.at(-1);
  const facts: [string, string | null][] = [
    ["Tester", roleOf(configuration, "tester")],
    ["Target", roleOf(configuration, "target")],
    ["Baseline", modelOf(models?.["baseline"])],
    ["Algorithm", kind(of("algorithm"))],
    ["Reward", kind(of("reward"))],
    ["Scorer", kind(of("scorer"))],
    ["Sampler", kind(of("sampler"))],
    ["Steps", stepsText(metrics.length, training)],
    ["Seed", textOf(configuration?.["seed"])],
    ["Begun", run === null ? null : textOf(run.sessions[0]?.started)],
    [
      "By",
      session === undefined
        ? null
        : `astra-rl ${shown(session.astra_rl)}, libtorch ${shown(session.engine.libtorch)}`,
    ],
  ];
  return facts.filter((fact): fact is [string, string] => fact[1] !== null);
}

function stepsText(done: number, training: Section): string | null {
  const planned = training?.["trainingSteps"];
  if (typeof planned !== "number") return done > 0 ? whole(done) : null;
  const episodes = training?.["numEpisodesPerExperience"];
  const trees = typeof episodes === "number" ? `, ${whole(episodes)} conversation trees each` : "";
  return `${done < planned ? `${whole(done)} of ${whole(planned)}` : whole(done)}${trees}`;
}

/** The settings of the runs, with all details on request. */
export function Facts({ report }: { report: ReportRecord }) {
  if (report.runs.length === 0) return null;
  return (
    <details class="settings">
      <summary>Settings, models and machine</summary>
      {report.runs.map((run) => (
        <section class="facts" aria-label={`Run ${shown(run.label)}`}>
          {report.runs.length > 1 && <h3>{shown(run.label)}</h3>}
          <dl>
            {factsOf(run).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
          {run.configuration !== null && <Whole title="The whole configuration" value={run.configuration} />}
          {run.run !== null && <Whole title="Machine, models and files" value={run.run} />}
        </section>
      ))}
    </details>
  );
}

/** The options in which runs differ. */
export function Differences({ report: { runs, differences } }: { report: ReportRecord }) {
  const labels = runs.map(({ label }) => shown(label));
  return (
    <section aria-labelledby="differences-title">
      <h2 id="differences-title">What differs</h2>
      {differences.length === 0 ? (
        <p class="note">The configurations are the same.</p>
      ) : (
        <Table
          label="Options that differ"
          headings={["option", ...labels]}
          labels={labels}
          rows={differences.map(({ key, values }) => ({ name: shown(key), cells: values.map(shown) }))}
        />
      )}
    </section>
  );
}

/** A complete record. */
function Whole({ title, value }: { title: string; value: unknown }) {
  const lines = JSON.stringify(value, null, 2).split("\n").map(shownLine);
  return (
    <details>
      <summary>{title}</summary>
      <pre tabIndex={0}>{lines.join("\n")}</pre>
    </details>
  );
}

const shownLine = (line: string) => `${/^ */.exec(line)![0]}${shown(line)}`;
