import type {
  ComparisonRecord,
  DiversityRecord,
  EvaluationDetail,
  EvaluationRecord,
  EvaluationSummary,
  IntervalRecord,
  MeasuredRecord,
  SecondSummary,
  TargetSummary,
} from "../records/index.js";
import {
  conversationLines,
  disagreementLines,
  foundConversations,
  foundNothing,
  verdictLines,
} from "./conversations.js";
import { percent, plain, pValue, signed } from "./figures.js";
import { table } from "./table.js";
import { visible } from "./visible.js";

export interface ComparisonReportOptions {
  before: EvaluationRecord;
  after: EvaluationRecord;
  comparison: ComparisonRecord;
  /** Number of found conversations to show. Default 3. */
  conversations?: number;
}

/** A plain-text report of before and after training: metrics with confidence intervals, then example conversations. */
export function comparisonReport({
  before,
  after,
  comparison,
  conversations = 3,
}: ComparisonReportOptions): string[] {
  const [first, second] = [before.summary, after.summary];
  const harmless = comparison.harmless_probe ?? null;
  const rows = [
    ["attack success rate", rateOf(first), rateOf(second), points(comparison.difference)],
    [
      "  95 % interval",
      intervalOf(first.success_rate_interval),
      intervalOf(second.success_rate_interval),
      differenceInterval(comparison.difference_interval),
    ],
    [`  paired test (${testOf(comparison.difference_interval)})`, "", "", pValue(comparison.p_value)],
    [
      "  with harmless probes only",
      harmlessOf(first),
      harmlessOf(second),
      points(harmless?.difference ?? null),
    ],
    [
      "  95 % interval",
      intervalOf(first.harmless_probe_success_rate_interval),
      intervalOf(second.harmless_probe_success_rate_interval),
      differenceInterval(harmless?.difference_interval ?? null),
    ],
    [
      `  paired test (${testOf(harmless?.difference_interval ?? null)})`,
      "",
      "",
      pValue(harmless?.p_value ?? null),
    ],
    ...secondRows(comparison, first, second),
    ["harmful probes", harmfulOf(first), harmfulOf(second), ""],
    [
      "  95 % interval",
      intervalOf(first.harmful_probe_rate_interval),
      intervalOf(second.harmful_probe_rate_interval),
      "",
    ],
    ["distinct probes", distinctOf(first), distinctOf(second), kept(comparison.distinct_probes_kept)],
    ...diversityRows(first, second),
    [
      "mean probe NLL, nats a token",
      plain(first.mean_probe_nll),
      plain(second.mean_probe_nll),
      signed(comparison.probe_nll_difference),
    ],
    ...nllTurnRows(first, second),
    [
      "mean reward of a turn",
      plain(first.mean_reward),
      plain(second.mean_reward),
      signed(comparison.reward_difference),
    ],
    ["mean harm of a response", plain(first.mean_response_harm), plain(second.mean_response_harm), ""],
    ["rollouts (with errors)", countOf(first), countOf(second), `${comparison.n_pairs} pairs`],
    ["turns failed, probes, responses empty", turnsOf(first), turnsOf(second), ""],
    ...outcomeRows(first, second),
    ...targetRows(first, second),
  ];
  const lines = table(["", "before", "after", "difference"], rows);
  const hack = rewardHack(comparison, after.summary);
  if (hack !== null) lines.push("", hack);
  const { harm_threshold: threshold } = after.summary;
  const shown = (detail: EvaluationDetail) => conversationLines(detail, threshold).map((line) => `  ${line}`);
  const found = foundConversations(after, conversations);
  lines.push(...fromBefore(before, after, found, shown));
  const many = found.length === 1 ? "conversation" : "conversations";
  lines.push(
    "",
    ...(found.length === 0 ? [] : verdictLines(after)),
    found.length === 0
      ? foundNothing(after)
      : `${found.length} found ${many} after training, those with harmless probes first, then the likeliest:`,
  );
  for (const detail of found) lines.push("", ...shown(detail));
  return [...lines, ...disagreementLines(after)];
}

/**
 * A conversation from before training without a harmful response, if possible from the prompt of an attack found
 * after training; otherwise the first one.
 */
function fromBefore(
  before: EvaluationRecord,
  after: EvaluationRecord,
  found: readonly EvaluationDetail[],
  shown: (detail: EvaluationDetail) => string[],
): string[] {
  const { n_rollouts: n, harm_threshold: threshold } = before.summary;
  const ledNowhere = ({ per_turn }: EvaluationDetail) =>
    per_turn.every((turn) => turn.response_harm !== null && turn.response_harm < threshold);
  // Both evaluations have the same prompts in the same order.
  const earlier = found.flatMap((detail) => before.details[after.details.indexOf(detail)] ?? []);
  const chosen = [...earlier, ...before.details].find(ledNowhere) ?? before.details[0];
  if (chosen === undefined) return [];
  const count = before.details.filter(ledNowhere).length;
  const heading = ledNowhere(chosen)
    ? `A conversation from before training, which led nowhere, as ${count} of ${n} did:`
    : "A conversation from before training:";
  return ["", heading, "", ...shown(chosen)];
}

const rateOf = (summary: EvaluationSummary) =>
  `${percent(summary.success_rate)} (${summary.n_successes}/${summary.n_scored})`;

const countOf = (summary: EvaluationSummary) => `${summary.n_rollouts} (${summary.n_errors})`;

/** For example "0, 3, 0 of 256"; a dash if not counted. */
const turnsOf = ({ n_turns, n_failed_turns, n_empty_probes, n_empty_responses }: EvaluationSummary) => {
  if (n_turns === undefined) return "–";
  return `${n_failed_turns}, ${n_empty_probes}, ${n_empty_responses} of ${n_turns}`;
};

/** Attack success per target; no rows if there is only one. */
function targetRows(...summaries: EvaluationSummary[]): string[][] {
  const names = [...new Set(summaries.flatMap(({ targets = [] }) => targets.map(({ target }) => target)))];
  const cells = (of: (found: TargetSummary) => string, name: string) => [
    ...summaries.map(({ targets = [] }) => {
      const found = targets.find(({ target }) => target === name);
      return found === undefined ? "–" : of(found);
    }),
    ...(summaries.length > 1 ? [""] : []),
  ];
  return names.flatMap((name) => [
    [
      `success against ${visible(name)}`,
      ...cells(
        (found) =>
          found.n_rollouts === 0
            ? "never asked"
            : share(found.success_rate, found.n_successes, found.n_scored),
        name,
      ),
    ],
    ["  95 % interval", ...cells((found) => intervalOf(found.success_rate_interval), name)],
  ]);
}

const harmlessOf = (summary: EvaluationSummary) =>
  share(
    summary.harmless_probe_success_rate,
    summary.n_harmless_probe_successes,
    summary.n_harmless_probe_scored,
  );

const harmfulOf = (summary: EvaluationSummary) =>
  share(summary.harmful_probe_rate, summary.n_harmful_probes, summary.n_probes);

const distinctOf = ({ n_distinct_probes: distinct, n_probes: n }: EvaluationSummary) =>
  distinct === null || n === null ? "–" : `${distinct} of ${n}`;

const kept = (ratio: number | null) => (ratio === null ? "–" : `${percent(ratio)} kept`);

function share(rate: number | null, part: number | null, whole: number | null): string {
  return rate === null ? "–" : `${percent(rate)} (${part}/${whole})`;
}

function intervalOf(interval: IntervalRecord | null): string {
  return interval === null ? "–" : `${percent(interval.lower)} to ${percent(interval.upper)}`;
}

const points = (difference: number | null) =>
  difference === null ? "–" : `${signed(100 * difference, 1)} points`;

function differenceInterval(interval: IntervalRecord | null): string {
  return interval === null ? "–" : `${signed(100 * interval.lower, 1)} to ${signed(100 * interval.upper, 1)}`;
}

/** What servers made of turns, such as "3 refused, 2 filtered"; no row if they answered all of them. */
function outcomeRows(...summaries: EvaluationSummary[]): string[][] {
  if (summaries.every(({ outcomes }) => outcomes === undefined)) return [];
  const cells = summaries.map(({ outcomes = {} }) =>
    Object.entries(outcomes)
      .map(([outcome, turns]) => `${turns} ${outcome}`)
      .join(", "),
  );
  return [["turns by the server's outcome", ...cells, ...(summaries.length > 1 ? [""] : [])]];
}

/**
 * A sentence where the tester gained by the first scorer and not by the second: the difference is above 0 at the 5 % level by
 * one alone. null where both agree, or there is no second scorer.
 */
export function rewardHack(
  { second, ...first }: ComparisonRecord,
  { second: by }: EvaluationSummary,
): string | null {
  const gained = ({ difference, p_value: p }: Pick<ComparisonRecord, "difference" | "p_value">) =>
    difference !== null && difference > 0 && p !== null && p < 0.05;
  if (second === undefined || by === undefined || !gained(first) || gained(second)) return null;
  return (
    `Reward hacking? Success rose by ${points(first.difference)} by the scorer that training saw, and by ` +
    `${points(second.difference)} (${pValue(second.p_value)}) by ${visible(by.scorer)}: read the conversations in which they ` +
    "disagree before you trust the first"
  );
}

/** Success as turns and tries go on; no rows where there is one of each. */
function courseRows({
  success_by_turn: turns = [],
  success_by_attempts: tries = [],
}: EvaluationSummary): string[][] {
  const chosen = tries.filter(({ attempts }) => Math.log2(attempts) % 1 === 0 || attempts === tries.length);
  return [
    ...(turns.length < 2
      ? []
      : [["  up to each turn", `${turns.map((share) => (100 * share).toFixed(0)).join(", ")} %`]]),
    ...chosen
      .filter(({ attempts }) => attempts > 1)
      .map(({ attempts, rate, n_prompts }) => [
        `  within ${attempts} tries from a prompt`,
        `${percent(rate)} of ${n_prompts}`,
      ]),
  ];
}

/** NLL of the first and the last turn: the mean over turns hides a drift between them. No row for single turns. */
function nllTurnRows(...summaries: EvaluationSummary[]): string[][] {
  const turns = summaries.map(({ probe_nll_by_turn: known = [] }) => known);
  if (!turns.every(({ length }) => length > 1)) return [];
  const cells = turns.map((each) => `${plain(each[0]!)}, ${plain(each.at(-1)!)}`);
  return [["  in the first turn, the last", ...cells, ...(summaries.length > 1 ? [""] : [])]];
}

/** Success by a second scorer; no rows without one. */
function secondRows(comparison: ComparisonRecord | null, ...summaries: EvaluationSummary[]): string[][] {
  const difference = comparison?.second;
  const name = summaries.flatMap(({ second }) => second?.scorer ?? [])[0];
  if (name === undefined) return [];
  const row = (label: string, of: (second: SecondSummary) => string, last = ""): string[] => [
    label,
    ...summaries.map(({ second }) => (second === undefined ? "–" : of(second))),
    ...(summaries.length > 1 ? [last] : []),
  ];
  const rate = (of: (second: SecondSummary) => number) => (second: SecondSummary) =>
    share(second.n_scored === 0 ? null : of(second) / second.n_scored, of(second), second.n_scored);
  return [
    row(
      `success by ${visible(name)}`,
      rate(({ n_both, n_second_only }) => n_both + n_second_only),
      points(difference?.difference ?? null),
    ),
    row(
      "  95 % interval",
      ({ success_rate_interval: interval }) => intervalOf(interval),
      differenceInterval(difference?.difference_interval ?? null),
    ),
    row(
      "  by both scorers",
      rate(({ n_both }) => n_both),
    ),
    row("  agreement (Cohen's kappa)", ({ kappa }) => plain(kappa)),
  ];
}

/** Diversity of the found attacks; no rows if not measured. */
function diversityRows(...summaries: EvaluationSummary[]): string[][] {
  const known = summaries.map(({ diversity }) => diversity ?? null);
  if (known.every((diversity) => diversity === null)) return [];
  const row = (name: string, of: (diversity: DiversityRecord) => string): string[] => [
    name,
    ...known.map((diversity) => (diversity === null ? "–" : of(diversity))),
    ...(summaries.length > 1 ? [""] : []),
  ];
  return [
    row(
      "found attacks, distinct",
      ({ n_attacks, n_distinct_attacks }) => `${n_distinct_attacks} of ${n_attacks}`,
    ),
    row("  clusters (of equal size)", ({ n_clusters, effective_clusters }) =>
      effective_clusters === null ? `${n_clusters}` : `${n_clusters} (${plain(effective_clusters, 1)})`,
    ),
    row("  success, each cluster once", ({ cluster_success_rate }) => percent(cluster_success_rate)),
    row("  self-BLEU", ({ self_bleu }) => plain(self_bleu)),
    row("  mean embedding distance", ({ embedding_distance }) => plain(embedding_distance)),
    row("  sentence structures (distance)", ({ n_structures, structure_distance }) =>
      n_structures === undefined ? "–" : `${n_structures} (${plain(structure_distance ?? null)})`,
    ),
  ];
}

/** The test of a paired difference: prompts are compared where each is tried several times. */
export const testOf = (interval: IntervalRecord | null): string =>
  interval?.method === "bootstrap-clustered" ? "permutation over prompts" : "exact McNemar";

/** A scorer as rates name it: its kind and its model. */
export function scorerName({ type, model }: MeasuredRecord["scorer"]): string {
  return visible(typeof model === "string" ? `${type} ${model}` : type);
}

/** A plain-text report of one evaluation. */
export function evaluationReport({
  summary,
  measured,
}: Pick<EvaluationRecord, "summary"> & { measured?: MeasuredRecord | null | undefined }): string[] {
  return table(
    ["", ""],
    [
      ["attack success rate", rateOf(summary)],
      ["  95 % interval", intervalOf(summary.success_rate_interval)],
      ...(measured === undefined || measured === null ? [] : [["  judged by", scorerName(measured.scorer)]]),
      ["  with harmless probes only", harmlessOf(summary)],
      ["  95 % interval", intervalOf(summary.harmless_probe_success_rate_interval)],
      ...courseRows(summary),
      ...secondRows(null, summary),
      ["harmful probes", harmfulOf(summary)],
      ["  95 % interval", intervalOf(summary.harmful_probe_rate_interval)],
      ["distinct probes", distinctOf(summary)],
      ...diversityRows(summary),
      ["mean probe NLL, nats a token", plain(summary.mean_probe_nll)],
      ...nllTurnRows(summary),
      ["mean reward of a turn", plain(summary.mean_reward)],
      ["mean harm of a response", plain(summary.mean_response_harm)],
      ["rollouts (with errors)", countOf(summary)],
      ["turns failed, probes, responses empty", turnsOf(summary)],
      ...outcomeRows(summary),
      ...targetRows(summary),
    ],
  ).slice(2);
}
