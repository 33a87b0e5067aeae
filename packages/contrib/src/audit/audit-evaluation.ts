import { createHash } from "node:crypto";
import { keyedUniform, UsageError } from "@astra-rl/base";
import type { EvaluationDetail, EvaluationRecord } from "@astra-rl/records";
import {
  cohenKappa,
  predictionPoweredRate,
  roganGladenRate,
  wilsonInterval,
  type Interval,
  type JudgedSample,
  pairedCounts,
} from "@astra-rl/analysis/statistics";
import { isScored, isScoredBySecond, succeeds, succeedsBySecond } from "@astra-rl/analysis";

/** A rollout for human labelling, without the scorers' verdicts. */
export interface AuditItem {
  /** Names the rollout and its texts: the same texts, the same id. */
  id: string;
  /** The whole conversation, each message with its speaker. */
  conversation: string;
}

/** Comparison of one scorer with human labels. */
export interface ScorerAudit {
  scorer: string;
  sample: JudgedSample;
  /** Of the rollouts that the scorer calls a success, the share that humans do. */
  precision: Interval | null;
  /** Of the rollouts that humans call a success, the share that the scorer does. */
  recall: Interval | null;
  /** Cohen's kappa of the two. */
  kappa: number | null;
  /** Success rate by the scorer on all its rollouts. */
  rate: Interval | null;
  /** Estimates of the rate by human labels. */
  corrected: { predictionPowered: Interval | null; roganGladen: Interval | null };
}

export interface Audit {
  /** Number of labelled rollouts. */
  nAudited: number;
  /** Of them, those labelled a success. */
  nHarmful: number;
  /** By the scorer of the evaluation, then by its second one, if any. */
  scorers: ScorerAudit[];
}

type Evaluated = Pick<EvaluationRecord, "summary" | "details" | "measured">;

/**
 * Draws rollouts for human labelling: at random, among those with every response scored, in random order.
 *
 * @param count at most all are drawn
 */
export function auditItems({ details }: Evaluated, count: number, seed = 0): AuditItem[] {
  const scored = details.flatMap((detail, index) => (isScored(detail) ? [{ detail, index }] : []));
  if (scored.length === 0)
    throw new UsageError(
      "nothing-scored",
      "audit: no rollout of this evaluation was scored, so there is nothing to judge",
    );
  const drawn = scored.map(({ detail, index }) => ({
    item: { id: idOf(detail, index), conversation: conversationOf(detail) },
    at: keyedUniform({ seed, stream: "audit", episode: index, node: 0 }, 0),
  }));
  return drawn
    .sort((a, b) => a.at - b.at)
    .slice(0, count)
    .map(({ item }) => item);
}

/**
 * Compares the scorers of an evaluation with human labels.
 *
 * @param harmful by id, whether the target's answers were harmful
 * @throws UsageError for an id that is not in this evaluation: the sheet is of another one, or texts have changed
 */
export function auditEvaluation(record: Evaluated, harmful: ReadonlyMap<string, boolean>): Audit {
  const { details, summary, measured } = record;
  const byId = new Map(details.map((detail, index) => [idOf(detail, index), detail]));
  for (const id of harmful.keys()) {
    if (byId.has(id)) continue;
    throw new UsageError(
      "unknown-rollout",
      `${id}: no rollout of this evaluation has this id and these texts; give the evaluation that the sheet was made from`,
    );
  }
  const compare = (
    scorer: string,
    isJudged: (detail: EvaluationDetail) => boolean,
    isSuccess: (detail: EvaluationDetail) => boolean,
  ): ScorerAudit => {
    const all = details.filter(isJudged);
    const judged = [...harmful.keys()].filter((id) => isJudged(byId.get(id)!));
    const counts = pairedCounts(
      judged,
      (id) => isSuccess(byId.get(id)!),
      (id) => harmful.get(id)!,
    );
    const { both: truePositives, onlyFirst: falsePositives, onlySecond: falseNegatives } = counts;
    const sample = { truePositives, falsePositives, falseNegatives, trueNegatives: counts.neither };
    const total = { positives: all.filter(isSuccess).length, total: all.length };
    return {
      scorer,
      sample,
      precision: wilsonInterval(truePositives, truePositives + falsePositives),
      recall: wilsonInterval(truePositives, truePositives + falseNegatives),
      kappa: cohenKappa(counts),
      rate: wilsonInterval(total.positives, total.total),
      corrected: {
        predictionPowered: predictionPoweredRate(total, sample),
        roganGladen: roganGladenRate(total, sample),
      },
    };
  };
  const { second } = summary;
  return {
    nAudited: harmful.size,
    nHarmful: [...harmful.values()].filter(Boolean).length,
    scorers: [
      compare(measured?.scorer.type ?? "the scorer", isScored, succeeds),
      ...(second === undefined
        ? []
        : [
            compare(
              second.scorer,
              (detail) => isScored(detail) && isScoredBySecond(detail),
              succeedsBySecond(summary.harm_threshold),
            ),
          ]),
    ],
  };
}

/** Index and texts of a rollout; the index alone would match a sheet of another evaluation. */
function idOf(detail: EvaluationDetail, index: number): string {
  const hash = createHash("sha256").update(conversationOf(detail)).digest("hex");
  return `${index}-${hash.slice(0, 12)}`;
}

function conversationOf({ per_turn: turns }: EvaluationDetail): string {
  const prompt = turns[0]?.context.trim() ?? "";
  return [
    ...(prompt === "" ? [] : [`PROMPT: ${prompt}`]),
    ...turns.flatMap(({ probe, response }) => [`USER: ${probe.trim()}`, `TARGET: ${response.trim()}`]),
  ].join("\n\n");
}
