import { isDeepStrictEqual } from "node:util";
import { UsageError } from "@astra-rl/base";
import type { ComparisonRecord, EvaluationDetail } from "@astra-rl/records";
import { compareEvaluations } from "./compare-evaluations.js";
import { differencesInSetup, promptOf, startOf, type Evaluated } from "./likeness.js";
import { holmAdjusted } from "./statistics/index.js";

/** An evaluation with its label in reports. */
export interface LabelledEvaluation {
  label: string;
  evaluation: Evaluated;
}

export interface CompareAllOptions {
  /** Compares evaluations with different settings as well, if there are pairs. @default false */
  force?: boolean;
}

/** One evaluation against the first. */
export interface OneComparison {
  label: string;
  /** Differences in their settings; empty unless the comparison was forced. */
  unlike: string[];
  /** Whether the two are the same evaluation, or equal in all records: their difference is 0 and meaningless. */
  isSame: boolean;
  /** Whether only some rollouts have a pair: those of shared prompts and goals, as many of each as both have. */
  isPartial: boolean;
  /** null if no prompt and goal is shared, so that there are no pairs. */
  record: ComparisonRecord | null;
  /** p-values adjusted by Holm for the number of comparisons: of success, success with harmless probes, and reward. */
  adjusted: { success: number | null; harmless: number | null; reward: number | null };
}

/**
 * Compares evaluations with the first one, rollout by rollout.
 *
 * @throws UsageError for evaluations with different settings, whose rates are not comparable
 */
export function compareAll(
  [first, ...others]: readonly LabelledEvaluation[],
  { force = false }: CompareAllOptions = {},
): OneComparison[] {
  if (first === undefined || others.length === 0)
    throw new UsageError("too-few-evaluations", "compare: needs two evaluations or more");
  const found = others.map(({ label, evaluation }) => {
    const unlike = differencesInSetup(first.evaluation, evaluation);
    if (unlike.length > 0 && !force) {
      throw new UsageError(
        "not-comparable",
        `compare: ${first.label} and ${label} are not comparable: ${unlike.join(", ")}; evaluate both with ` +
          `the same settings, or compare them ` +
          "anyway with --force",
      );
    }
    const isSame = isDeepStrictEqual(contentOf(first.evaluation), contentOf(evaluation));
    const isPartial = unlike.some((phrase) => /^different (?:prompts|goals)$|rollouts$/u.test(phrase));
    return {
      label,
      unlike,
      isSame,
      isPartial,
      record: isPartial
        ? comparePart(first.evaluation, evaluation)
        : compareEvaluations(first.evaluation, evaluation),
    };
  });
  const adjust = (of: (record: ComparisonRecord) => number | null) =>
    holmAdjusted(found.map(({ record }) => (record === null ? null : of(record))));
  const success = adjust(({ p_value: p }) => p);
  const harmless = adjust(({ harmless_probe: { p_value: p } }) => p);
  const reward = adjust(({ reward_p_value: p }) => p);
  return found.map((each, at) => ({
    ...each,
    adjusted: { success: success[at]!, harmless: harmless[at]!, reward: reward[at]! },
  }));
}

/** Compares the rollouts of shared prompts and goals, as many of each as both have, in the order of the first. */
function comparePart(first: Evaluated, second: Evaluated): ComparisonRecord | null {
  const waiting = new Map<string, EvaluationDetail[]>();
  for (const detail of second.details) {
    const start = startOf(detail, second);
    waiting.set(start, [...(waiting.get(start) ?? []), detail]);
  }
  const firsts = new Map<string, number>();
  const pairs = first.details.flatMap((detail) => {
    const other = waiting.get(startOf(detail, first))?.shift();
    return other === undefined ? [] : [[detail, other] as const];
  });
  if (pairs.length === 0) return null;
  // The indices of a prompt's rollouts have changed.
  const placed = (side: 0 | 1) =>
    pairs.map((pair, at) => {
      const prompt = promptOf(pair[side]);
      if (!firsts.has(prompt)) firsts.set(prompt, at);
      return { ...pair[side], overall: { ...pair[side].overall, prompt: firsts.get(prompt)! } };
    });
  const [before, after] = [placed(0), placed(1)];
  const record = compareEvaluations({ ...first, details: before }, { ...second, details: after });
  // Counted over all rollouts, whose numbers differ.
  return { ...record, distinct_probes_kept: null };
}

const contentOf = ({ summary, details, goals, benign, measured = null }: Evaluated) => ({
  summary,
  details,
  goals,
  benign,
  measured,
});
