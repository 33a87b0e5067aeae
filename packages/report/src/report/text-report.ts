import {
  callText,
  doubtsOfEvaluation,
  doubtsOfFigures,
  noVerdict,
  testOf,
  warningsOf,
  type EvaluationDetail,
  type GoalRate,
  type MetricsRecord,
  type ReportEvaluation,
  type ReportRecord,
} from "@astra-rl/records";
import { csvOf } from "../export/csv.js";
import { figureRows, scorerName } from "./comparison-report.js";
import { conversationLines, doubtLines, foundConversations } from "./conversations.js";
import { plain, pValue, signed } from "./figures.js";
import { goalMarkdown } from "./goal-report.js";
import { seedsTable } from "./over-seeds.js";
import { markdownTable, markdownText } from "./markdown.js";
import { visible } from "./visible.js";

/** The CSV tables: a row per turn, goal or benign prompt of the evaluations, or per training step of the runs. */
export const CSV_TABLES = ["turns", "steps", "goals", "benign"] as const;
export type CsvTable = (typeof CSV_TABLES)[number];

/** One table as CSV, with a header row. */
export function csvReport(record: ReportRecord, table: CsvTable): string {
  const tables = {
    turns: () => turnRows(record.evaluations),
    steps: () => stepRows(record),
    goals: () => goalRows(record),
    benign: () => benignRows(record),
  };
  const [heading, ...rows] = tables[table]();
  // Cells are single lines.
  const shown = (cell: Cell) => (typeof cell === "string" ? visible(cell) : cell);
  return csvOf(
    heading as string[],
    rows.map((row) => row.map(shown)),
  );
}

type Cell = string | number | boolean | null;

function turnRows(evaluations: readonly ReportEvaluation[]): Cell[][] {
  const hasCalls = evaluations.some(({ details }) =>
    details.some(({ per_turn: turns }) => turns.some(({ calls }) => calls !== undefined)),
  );
  const heading = [
    "evaluation",
    "rollout",
    "turn",
    "context",
    "probe",
    "response",
    "probe harm",
    "response harm",
    "reward",
    "probe NLL",
    "error",
    ...(hasCalls ? ["calls"] : []),
  ];
  const rows = evaluations.flatMap(({ label, details }) =>
    details.flatMap(({ per_turn }: EvaluationDetail, rollout) =>
      per_turn.map((turn): Cell[] => [
        label,
        rollout,
        turn.turn,
        turn.context,
        turn.probe,
        turn.response,
        turn.probe_harm,
        turn.response_harm,
        turn.reward,
        turn.probe_nll,
        turn.error,
        ...(hasCalls ? [(turn.calls ?? []).map(callText).join("\n")] : []),
      ]),
    ),
  );
  return [heading, ...rows];
}

function goalRows({ evaluations }: ReportRecord): Cell[][] {
  const heading = [
    "evaluation",
    "goal",
    "category",
    "text",
    "tries",
    "successes",
    "rate",
    "lower",
    "upper",
    "harmless tries",
    "harmless successes",
    "harmless rate",
    "harmless lower",
    "harmless upper",
  ];
  const rateCells = ({ n, n_successes, rate, interval }: GoalRate): Cell[] => [
    n,
    n_successes,
    rate,
    interval?.lower ?? null,
    interval?.upper ?? null,
  ];
  const rows = evaluations.flatMap(({ label, summary, goals: known = [] }) =>
    (summary.goals?.by_goal ?? []).map(({ id, success, harmless_probe: harmless }): Cell[] => {
      const goal = known.find((each) => each.id === id);
      return [
        label,
        id,
        goal?.category ?? null,
        goal?.text ?? null,
        ...rateCells(success),
        ...rateCells(harmless),
      ];
    }),
  );
  return [heading, ...rows];
}

function benignRows({ evaluations }: ReportRecord): Cell[][] {
  const rows = evaluations.flatMap(({ label, benign = [] }) =>
    benign.map(({ prompt, response, refusal, is_refused: isRefused, error }): Cell[] => [
      label,
      prompt,
      response,
      refusal,
      isRefused,
      error,
    ]),
  );
  return [["evaluation", "prompt", "response", "refusal", "refused", "error"], ...rows];
}

function stepRows({ runs }: ReportRecord): Cell[][] {
  const keys = [...new Set(runs.flatMap(({ metrics }) => metrics.flatMap(Object.keys)))].filter(
    (key) => key !== "version",
  );
  const rows = runs.flatMap(({ label, metrics }) =>
    metrics.map((record: MetricsRecord): Cell[] => [label, ...keys.map((key) => record[key] ?? null)]),
  );
  return [["run", ...keys], ...rows];
}

/** "warnings during training: repeats (step 7), kl (step 9)"; null where there was none. */
export function warningsLine(metrics: readonly MetricsRecord[]): string | null {
  const warnings = warningsOf(metrics).map(({ rule, step }) => `${rule} (step ${step})`);
  return warnings.length === 0 ? null : `warnings during training: ${warnings.join(", ")}`;
}

export interface MarkdownOptions {
  /** Number of found conversations of the last evaluation to show. Default 3. */
  conversations?: number;
}

/** Metrics and example conversations as Markdown, for an issue or a model card. */
export function markdownReport(
  { runs, evaluations, differences, comparison, seeds }: ReportRecord,
  { conversations = 3 }: MarkdownOptions = {},
): string {
  const lines = ["# ASTRA-RL report"];
  if (seeds.length > 0) {
    const { heading, rows } = seedsTable(seeds);
    lines.push(
      "",
      "## Over seeds",
      "",
      "Means of the last evaluations, with Student's t interval of 95 % over seeds.",
      "",
      ...markdownTable(
        heading,
        rows.map((row) => row.map((cell) => visible(cell))),
        "--:",
      ),
    );
  }
  const labels = (labelled: readonly { label: string }[]) => labelled.map(({ label }) => visible(label));
  for (const { label, configuration, metrics, doubts } of runs) {
    const sectionOf = (key: string) => (configuration?.[key] ?? {}) as Section;
    const { tester, otherTesters = [], target, otherTargets = [] } = sectionOf("models");
    const system = sectionOf("system")["type"];
    lines.push("", `## Run ${markdownText(label)}`, "");
    const facts: [string, unknown][] = [
      ["tester", namesOf([tester ?? system, otherTesters])],
      ["target", namesOf([target ?? system, otherTargets])],
      ["judged by", judgeOf(sectionOf("scorer"))],
      ["harmful from", sectionOf("evaluation")["threshold"]],
      ["algorithm", sectionOf("algorithm")["type"]],
      ["seed", configuration?.["seed"]],
      ["training steps", metrics.length],
    ];
    for (const [name, value] of facts)
      if (value !== undefined && value !== "")
        lines.push(`- ${name}: ${markdownText(typeof value === "string" ? value : JSON.stringify(value))}`);
    const warnings = warningsLine(metrics);
    if (warnings !== null) lines.push(`- ${markdownText(warnings)}`);
    if (doubts.length > 0) lines.push("", `**${markdownText(noVerdict(doubts))}**`);
  }
  if (differences.length > 0) {
    const rows = differences.map(({ key, values }) => [key, ...values].map((each) => visible(each)));
    lines.push("", "## Differences", "", ...markdownTable(["", ...labels(runs)], rows));
  }
  if (evaluations.length > 0) {
    const rows = figureRows(
      evaluations.map(({ summary }) => summary),
      null,
      evaluations.map(({ measured }) => measured),
    );
    lines.push("", "## Evaluations", "", ...markdownTable(["", ...labels(evaluations)], rows, "--:"));
  }
  const withGoals = evaluations.findLast(({ summary }) => summary.goals !== undefined);
  if (withGoals !== undefined) {
    lines.push("", `## Goals (${markdownText(withGoals.label)})`, ...goalMarkdown(withGoals));
  }
  for (const { label, summary } of evaluations) {
    const doubts = doubtsOfFigures(doubtsOfEvaluation(summary));
    if (doubts.length > 0) lines.push("", `**${markdownText(label)}: ${markdownText(noVerdict(doubts))}**`);
    for (const line of doubtLines({ summary }))
      lines.push("", `${markdownText(label)}: ${markdownText(line)}`);
  }
  if (comparison !== null) {
    const { difference, difference_interval: interval, p_value, n_pairs } = comparison.record;
    const points = (share: number | null = null) => signed(share === null ? null : 100 * share, 1);
    lines.push(
      "",
      `Difference in success from ${markdownText(evaluations[comparison.before]!.label)} to ` +
        `${markdownText(evaluations[comparison.after]!.label)}: ${points(difference)} points (95 % interval ` +
        `${points(interval?.lower)} to ${points(interval?.upper)}, ${pValue(p_value)} by ${testOf(interval)}, ` +
        `${n_pairs} pairs); probe NLL ${plain(comparison.record.probe_nll_difference)} nats a token.`,
    );
  }
  const hack = comparison?.reward_hack ?? null;
  if (hack !== null) lines.push("", `**${markdownText(hack)}**`);
  const last = evaluations.at(-1);
  const found = last === undefined ? [] : foundConversations(last, conversations);
  if (found.length > 0) {
    lines.push("", `## Found conversations, most likely first (${markdownText(last!.label)})`);
    for (const detail of found) {
      // Indented, because model output may contain any code fence; each item is one line.
      const talk = conversationLines(detail, last!.summary.harm_threshold);
      lines.push("", ...talk.map((line) => `    ${line}`));
    }
  }
  return `${lines.join("\n")}\n`;
}

type Section = Readonly<Record<string, unknown>>;

/** The name of a model that is given as a name or as a section; empty if it has none. */
function modelName(given: unknown): string {
  if (typeof given === "string") return given;
  const { path, model, type } = (given ?? {}) as Section;
  return [path, model, type].find((name) => typeof name === "string") ?? "";
}

const namesOf = (models: readonly unknown[]): string =>
  models
    .flat()
    .map(modelName)
    .filter((name) => name !== "")
    .join(", ");

/** A scorer's kind with its model; empty without one. */
const judgeOf = ({ type, path, model }: Section): string =>
  typeof type === "string" ? scorerName({ type, model: path ?? model }) : "";
