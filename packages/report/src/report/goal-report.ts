import type { EvaluationRecord, GoalFigures, GoalRate, UnknownReason } from "@astra-rl/records";
import { percent, percentBetween, plain, share } from "./figures.js";
import { markdownTable, markdownText } from "./markdown.js";
import { table } from "./table.js";
import { visible } from "./visible.js";

type Evaluation = Pick<EvaluationRecord, "summary" | "goals">;

/** Rows of one table about goals. */
interface GoalTable {
  title: string;
  heading: string[];
  rows: string[][];
}

/** Goals in tables by goal. */
const MOST = 30;
/** Goals that are named in a sentence. */
const NAMED = 10;
/** Characters of a goal's text. */
const LONG = 60;

const REASONS: Record<UnknownReason, string> = {
  "few-goals": "fewer than 8 goals do not show how much goals differ",
  "single-tries": "no goal was tried twice",
  "no-success": "no try succeeded",
  "all-successes": "every try succeeded",
  "all-or-nothing": "each goal is reached at every try or at none",
};

const rateCell = ({ rate, n_successes: part, n }: GoalRate) => share(rate, part, n);

/** Powers of two, and the most tries. */
function chosenTries(within: GoalFigures["within"]): number[] {
  const most = within.length;
  return within.map(({ attempts }) => attempts).filter((k) => k === most || Math.log2(k) % 1 === 0);
}

/** How many goals are reached: within the tries made, beyond them, and what it takes. */
function reachTable({
  success,
  harmless_probe: harmless,
}: NonNullable<Evaluation["summary"]["goals"]>): GoalTable {
  const row = (label: string, of: (figures: GoalFigures) => string) => [label, of(success), of(harmless)];
  const tries = [...new Set([...chosenTries(success.within), ...chosenTries(harmless.within)])].sort(
    (a, b) => a - b,
  );
  const beyond = [
    ...new Set(
      [success, harmless].flatMap(({ extrapolated }) => extrapolated.at.map(({ attempts }) => attempts)),
    ),
  ];
  return {
    title: "Goals",
    heading: ["", "success", "with harmless probes only"],
    rows: [
      row("goals reached", ({ n_reached, n_scored }) => `${n_reached} of ${n_scored}`),
      ...tries.map((attempts) =>
        row(`  within ${attempts} ${attempts === 1 ? "try" : "tries"} of each`, ({ within }) => {
          const found = within[attempts - 1];
          if (found === undefined) return "–";
          const left = found.n_left_out === 0 ? "" : `, ${found.n_left_out} goals with fewer left out`;
          return `${percent(found.rate)} of ${found.n_goals}${left}`;
        }),
      ),
      ...beyond.flatMap((attempts) => {
        const at = ({ extrapolated }: GoalFigures) =>
          extrapolated.at.find((each) => each.attempts === attempts);
        return [
          row(`  within ${attempts}, extrapolated`, (figures) => {
            const found = at(figures);
            if (found === undefined) return "–";
            return found.rate === null
              ? "unknown"
              : `${percent(found.rate)}, ${percentBetween(found.interval)}`;
          }),
          row("    for any rates of goals", (figures) => percentBetween(at(figures)?.bounds ?? null)),
        ];
      }),
      ...success.budget.map(({ share: part }, at) =>
        row(`tries of each until ${percent(part)} are reached`, ({ budget }) => {
          const { rounds, tries: all, turns, probe_tokens: tokens } = budget[at] ?? {};
          if (rounds === undefined || rounds === null) return "not reached";
          const cost =
            tokens === null
              ? `${plain(turns!, 0)} turns`
              : `${plain(turns!, 0)} turns, ${plain(tokens!, 0)} tokens`;
          return `${plain(rounds, 1)} (${plain(all!, 0)} tries, ${cost})`;
        }),
      ),
    ],
  };
}

function tablesOf({ summary: { goals }, goals: known = [] }: Evaluation): GoalTable[] {
  if (goals === undefined) return [];
  const texts = new Map(known.map(({ id, text }) => [id, text]));
  const heading = (of: string) => [of, "success", "95 % interval", "with harmless probes only"];
  const cells = ({ success, harmless_probe: harmless }: { success: GoalRate; harmless_probe: GoalRate }) => [
    rateCell(success),
    percentBetween(success.interval),
    rateCell(harmless),
  ];
  return [
    reachTable(goals),
    ...(goals.by_category.length === 0
      ? []
      : [
          {
            title: "Success by category",
            heading: [...heading("category"), "goals reached"],
            rows: goals.by_category.map((each) => [
              visible(each.category ?? "no category"),
              ...cells(each),
              `${each.n_reached} of ${each.n_goals}`,
            ]),
          },
        ]),
    {
      title:
        goals.by_goal.length > MOST
          ? `Success by goal, the first ${MOST} of ${goals.n_goals}`
          : "Success by goal",
      heading: heading("goal"),
      rows: goals.by_goal
        .slice(0, MOST)
        .map((each) => [visible(`${each.id}: ${texts.get(each.id) ?? ""}`, LONG), ...cells(each)]),
    },
  ];
}

/** What the tables do not say: the goals never reached, those that were not scored, and why a figure is unknown. */
function sentencesOf({ goals }: Evaluation["summary"]): string[] {
  if (goals === undefined) return [];
  const { success, harmless_probe: harmless } = goals;
  const named = (ids: readonly string[]) => {
    const rest = ids.length - NAMED;
    return `${visible(ids.slice(0, NAMED).join(", "))}${rest > 0 ? ` and ${rest} more` : ""}`;
  };
  const { never_reached: never, not_scored: unscored, extrapolated } = success;
  const farther = harmless.never_reached.filter((id) => !never.includes(id));
  return [
    ...(never.length === 0 ? [] : [`Never reached: ${named(never)}.`]),
    ...(farther.length === 0 ? [] : [`Never reached with harmless probes only: ${named(farther)}.`]),
    ...(unscored.length === 0 ? [] : [`Without a scored rollout, and in no figure: ${named(unscored)}.`]),
    ...(extrapolated.at.length === 0 || extrapolated.reason === null
      ? []
      : [`More tries than were made cannot be extrapolated to: ${REASONS[extrapolated.reason]}.`]),
    ...(extrapolated.at.length === 0 || extrapolated.reason !== null
      ? []
      : ["Extrapolated rates assume that the rates of goals follow a Beta distribution."]),
  ];
}

/** Lines of a terminal about the goals of an evaluation; none without goals. */
export const goalLines = (evaluation: Evaluation): string[] => [
  ...tablesOf(evaluation).flatMap(({ title, heading, rows }) => ["", `${title}:`, ...table(heading, rows)]),
  ...sentencesOf(evaluation.summary).flatMap((sentence) => ["", sentence]),
];

/** The same as Markdown. */
export const goalMarkdown = (evaluation: Evaluation): string[] => [
  ...tablesOf(evaluation).flatMap(({ title, heading, rows }) => [
    "",
    `### ${markdownText(title)}`,
    "",
    ...markdownTable(heading, rows, "--:"),
  ]),
  ...sentencesOf(evaluation.summary).flatMap((sentence) => ["", markdownText(sentence)]),
];
