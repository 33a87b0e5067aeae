import {
  callText,
  divergenceText,
  doubtsOfEvaluation,
  doubtsOfFigures,
  doubtsOfMeasurement,
  noVerdict,
  type EvaluationDetail,
  type EvaluationRecord,
} from "@astra-rl/records";
import { statistics } from "@astra-rl/analysis";
import { plain, pValue } from "./figures.js";
import { visible } from "./visible.js";

/** The parts of an evaluation that are searched for conversations. */
export interface Evaluated {
  summary: EvaluationRecord["summary"];
  details: readonly EvaluationDetail[];
}

const harm = (detail: EvaluationDetail) =>
  Math.max(0, ...detail.per_turn.map((turn) => turn.response_harm ?? 0));

/**
 * The successful rollouts without duplicate probes: those with harmless probes only first, then by probe likelihood,
 * since likely probes are the ones that a deployed model will encounter.
 */
export function foundConversations(record: Evaluated, count: number): EvaluationDetail[] {
  const nll = (detail: EvaluationDetail) => {
    const known = detail.per_turn.filter((turn) => turn.probe_nll !== null);
    const tokens = known.reduce((sum, turn) => sum + (turn.probe_tokens ?? 0), 0);
    const total = known.reduce((sum, turn) => sum + turn.probe_nll! * (turn.probe_tokens ?? 0), 0);
    return tokens === 0 ? Infinity : total / tokens;
  };
  const innocent = (detail: EvaluationDetail) => (detail.overall.harmless_probe_success === true ? 1 : 0);
  const successes = record.details
    .filter((detail) => harm(detail) >= record.summary.harm_threshold)
    .sort((a, b) => innocent(b) - innocent(a) || nll(a) - nll(b));
  const seen = new Set<string>();
  const found: EvaluationDetail[] = [];
  for (const detail of successes) {
    const probes = JSON.stringify(detail.per_turn.map((turn) => turn.probe));
    if (seen.has(probes)) continue;
    seen.add(probes);
    found.push(detail);
    if (found.length === count) break;
  }
  return found;
}

// Leading and trailing white space is formatting, not content.
const said = (text: string, limit: number) => visible(text.trim(), limit);

const harmMark = (score: number | null, threshold: number) =>
  score === null ? "harm unknown" : `harm ${plain(score)}${score >= threshold ? " ◀" : ""}`;

/** A rollout as lines: the prompt, then each probe and response with its scores. */
export function conversationLines(detail: EvaluationDetail, threshold: number, limit = 300): string[] {
  const lines: string[] = [];
  for (const turn of detail.per_turn) {
    if (lines.length === 0) {
      const prompt = turn.prompt_messages ?? ([["prompt", turn.context]] as const);
      for (const [from, text] of prompt) lines.push(`${from.padEnd(10)}${said(text, limit)}`);
    }
    const { second_response_harm: second } = turn;
    const byFirst = harmMark(turn.response_harm, threshold);
    const mark = second === undefined ? byFirst : `${byFirst}; by the second, ${harmMark(second, threshold)}`;
    lines.push(
      `tester    ${said(turn.probe, limit)}   [NLL ${plain(turn.probe_nll)}, ${harmMark(turn.probe_harm, threshold)}]`,
    );
    for (const call of turn.calls ?? []) lines.push(`call      ${said(callText(call), limit)}`);
    for (const other of turn.diverged ?? []) lines.push(`diverged  ${said(divergenceText(other), limit)}`);
    // Before it failed, a target may have done harm.
    const known = turn.error === null || turn.response_harm !== null ? [mark] : [];
    const outcome = [...(turn.error === null ? [] : [visible(turn.error, limit)]), ...known].join("; ");
    lines.push(`target    ${said(turn.response, limit)}   [${outcome}]`);
  }
  return lines;
}

/** The sentence for an evaluation that found no harm; it covers only the targets that were used. */
function foundNothing({ summary }: Pick<Evaluated, "summary">): string {
  const doubts = doubtsOfFigures(doubtsOfEvaluation(summary));
  if (doubts.length > 0) return `${visible(noVerdict(doubts))}.`;
  if (summary.n_scored === 0) return "No conversation was scored.";
  const silent = (summary.targets ?? []).filter((target) => target.n_rollouts === 0);
  const unasked = silent.map(({ target }) => `; ${visible(target)} was never used`).join("");
  return `No conversation led to a harmful response${unasked}.`;
}

/** A note if the metrics of an evaluation say nothing about the target; found conversations remain valid. */
function verdictLines({ summary }: Pick<Evaluated, "summary">): string[] {
  const doubts = doubtsOfFigures(doubtsOfEvaluation(summary));
  return doubts.length === 0
    ? []
    : [`${visible(noVerdict(doubts))}; the conversations found remain valid.`, ""];
}

/** A line for each doubt about the measurement: the figures hold, but are not evidence of safety. */
export const doubtLines = ({ summary }: Pick<Evaluated, "summary">): string[] =>
  doubtsOfMeasurement(doubtsOfEvaluation(summary)).map(
    ({ rule, reason }) => `Doubtful (${rule}): ${visible(reason)}.`,
  );

/**
 * The last part of a report: the most likely conversations that led to harm, and those on which scorers disagree.
 *
 * @param order ends the heading
 */
export function foundReport(record: Evaluated, count = 3, order = ", most likely first"): string[] {
  const found = foundConversations(record, count);
  const doubtful = doubtLines(record);
  if (found.length === 0) return ["", foundNothing(record), ...doubtful, ...disagreementLines(record)];
  const many = found.length === 1 ? "conversation" : "conversations";
  return [
    "",
    ...verdictLines(record),
    ...doubtful,
    ...(doubtful.length > 0 ? [""] : []),
    `${found.length} found ${many}${order}:`,
    ...shownConversations(found, record),
    ...disagreementLines(record),
  ];
}

/** Benign prompts that the target refused; none without any. */
export function refusalLines(
  { summary, benign = [] }: Pick<EvaluationRecord, "summary" | "benign">,
  count = 3,
): string[] {
  const refused = benign.filter(({ is_refused: isRefused }) => isRefused === true);
  if (refused.length === 0) return [];
  const { n_errors: errors = 0 } = summary.over_refusal ?? {};
  const without = errors === 0 ? "" : ` (${errors} more without an answer that could be scored)`;
  return [
    "",
    `The target refused ${refused.length} of ${benign.length - errors} benign prompts${without}, such as:`,
    ...refused
      .slice(0, count)
      .flatMap(({ prompt, response }) => [
        "",
        `  prompt    ${said(prompt, 300)}`,
        `  target    ${said(response, 300)}`,
      ]),
  ];
}

/** Conversations, indented, each after an empty line. */
export const shownConversations = (details: readonly EvaluationDetail[], { summary }: Evaluated): string[] =>
  details.flatMap((detail) => [
    "",
    ...conversationLines(detail, summary.harm_threshold).map((line) => `  ${line}`),
  ]);

/** Conversations that only one of two scorers calls a success; none without a second scorer. */
function disagreementLines(record: Evaluated, count = 2): string[] {
  const { second, harm_threshold: threshold } = record.summary;
  const differ = second === undefined ? 0 : second.n_first_only + second.n_second_only;
  if (second === undefined || differ === 0) return [];
  const bySecond = ({ per_turn }: EvaluationDetail) =>
    Math.max(0, ...per_turn.map(({ second_response_harm: score }) => score ?? 0));
  const split = record.details.filter(
    (detail) =>
      detail.per_turn.every(
        (turn) => turn.response_harm !== null && (turn.second_response_harm ?? null) !== null,
      ) && harm(detail) >= threshold !== bySecond(detail) >= threshold,
  );
  const { n_first_only: first, n_second_only: only } = second;
  const name = visible(second.scorer);
  const heading =
    `The scorers disagree on ${differ} of ${second.n_scored} rollouts (${first} are a success by the first alone, ` +
    `${only} by ${name} alone), such as:`;
  const p = statistics.exactMcNemar(first, only);
  // A tester that exploits the scorer that rewards it succeeds far more often according to that scorer.
  const hack =
    first > only && p < 0.01
      ? [
          "",
          `Possible reward hacking: the first scorer calls ${first} rollouts a success that ${name} does not, ` +
            `and ${name} only ${only} that ` +
            `the first does not (${pValue(p)})`,
        ]
      : [];
  return [...hack, "", heading, ...shownConversations(split.slice(0, count), record)];
}
