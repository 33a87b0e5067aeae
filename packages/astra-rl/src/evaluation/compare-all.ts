import { isDeepStrictEqual } from "node:util";
import { UsageError } from "@astra-rl/torch";
import type { ComparisonRecord } from "../records/index.js";
import { compareEvaluations } from "./compare-evaluations.js";
import { unlikeness, type Evaluated } from "./likeness.js";
import { holmAdjusted } from "./statistics/index.js";

/** An evaluation under the name that reports show. */
export interface LabelledEvaluation {
  label: string;
  evaluation: Evaluated;
}

export interface CompareAllOptions {
  /** Compares what is unlike, too, as far as there are pairs. @default false */
  force?: boolean;
}

/** One evaluation against the first. */
export interface OneComparison {
  label: string;
  /** What the two have unlike; empty unless the comparison was forced. */
  unlike: string[];
  /** Whether the two are one evaluation given twice, or equal in all they say: their difference is 0 and means nothing. */
  isSame: boolean;
  /** null where prompts differ, so that there are no pairs. */
  record: ComparisonRecord | null;
  /** p-values adjusted by Holm for the number of comparisons: of success, success with harmless probes, and reward. */
  adjusted: { success: number | null; harmless: number | null; reward: number | null };
}

/**
 * Compares evaluations with the first one, rollout by rollout.
 *
 * @throws UsageError for evaluations that are unlike: differences of their rates say nothing of tester or target
 */
export function compareAll(
  [first, ...others]: readonly LabelledEvaluation[],
  { force = false }: CompareAllOptions = {},
): OneComparison[] {
  if (first === undefined || others.length === 0)
    throw new UsageError("compare: needs two evaluations or more");
  const found = others.map(({ label, evaluation }) => {
    const unlike = unlikeness(first.evaluation, evaluation);
    if (unlike.length > 0 && !force) {
      throw new UsageError(
        `compare: ${first.label} and ${label} are unlike: ${unlike.join(", ")}; evaluate both alike, or compare them all the same ` +
          "with --force",
      );
    }
    const isPaired = !unlike.some((phrase) => phrase === "other prompts" || phrase.endsWith("rollouts"));
    const isSame = isDeepStrictEqual(contentOf(first.evaluation), contentOf(evaluation));
    return {
      label,
      unlike,
      isSame,
      record: isPaired ? compareEvaluations(first.evaluation, evaluation) : null,
    };
  });
  const adjust = (of: (record: ComparisonRecord) => number | null) =>
    holmAdjusted(found.map(({ record }) => (record === null ? null : of(record))));
  const success = adjust(({ p_value: p }) => p);
  const harmless = adjust(({ harmless_probe: rates }) => rates?.p_value ?? null);
  const reward = adjust(({ reward_p_value: p }) => p);
  return found.map((each, at) => ({
    ...each,
    adjusted: { success: success[at]!, harmless: harmless[at]!, reward: reward[at]! },
  }));
}

const contentOf = ({ summary, details, measured = null }: Evaluated) => ({ summary, details, measured });
