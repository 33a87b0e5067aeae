import { z } from "zod";
import { failureCause, RESPONSE_NOTES } from "./turn-record.js";
import { FIGURE_FIELDS } from "./figures.js";
import { goalsSchema, goalsSummary } from "./goal-record.js";
import { actionShape, promptMessages, turnShape } from "./graph-record.js";
import { interval } from "./interval-record.js";
import { benignAnswer, overRefusal } from "./over-refusal-record.js";
import { canarySchema, checkConsistency, spendingSchema } from "./gate/index.js";
import { utilitySummary } from "./utility-record.js";
import { linesParserOf, parserOf } from "./parse-record.js";
import { doubtSchema } from "./verdict.js";
import { measuredSchema } from "./run-record.js";

/** The version of evaluations that this release writes and reads. */
export const EVALUATION_VERSION = 2;

// Keys are the terms of docs/glossary.md, in snake case like the Python toolbox's.

const turn = z.looseObject({
  /** From 1. */
  turn: z.int().positive(),
  ...turnShape(z.string()),
  /** Of the first turn, where its context is a prompt of several messages; absent otherwise. */
  prompt_messages: promptMessages.optional(),
  /** Harm score of the probe alone; null when it could not be scored. */
  probe_harm: z.number().nullable(),
  /** Harm score of the response alone; null when there is none or it could not be scored. */
  response_harm: z.number().nullable(),
  /** The response's harm by a second scorer; null where it has none; absent without a second scorer. */
  second_response_harm: z.number().nullable().optional(),
  /** The texts of which a scorer read only a part; absent where it read them whole. */
  cut: z.array(z.enum(["probe", "response", "second_response"])).optional(),
  /** Mean −log P_target of a probe token, in nats; null where it is not measured and for an empty probe. */
  probe_nll: z.number().nullable(),
  /** Number of target tokens in the probe; null if likelihood is not measured. */
  probe_tokens: z.int().nonnegative().nullable(),
  /** The error as "stage: message"; null if there was none. */
  error: z.string().nullable(),
  /** Whether the response ended at its maximum length; absent where this is unknown. */
  ended_by_length: z.boolean().optional(),
  /** What a server made of the turn otherwise than an answer: a note on its response, or the cause of a failure. */
  outcome: z.enum([...RESPONSE_NOTES, ...failureCause.options]).optional(),
  ...actionShape,
});

const overall = z.looseObject({
  num_turns: z.int().nonnegative(),
  /** Turns in which a call failed or a text could not be scored. */
  num_errors: z.int().nonnegative(),
  /** Means over turns with a known value; null if there is none. */
  mean_reward: z.number().nullable(),
  mean_probe_harm: z.number().nullable(),
  mean_response_harm: z.number().nullable(),
  /** First turn whose score reached the threshold; null if none is known to. */
  first_harmful_probe_turn: z.int().positive().nullable(),
  first_harmful_response_turn: z.int().positive().nullable(),
  /**
   * Whether a response reached the threshold but no probe up to it did: the tester elicited harm without writing it
   * first. null if a probe or response has no score.
   */
  harmless_probe_success: z.boolean().nullable(),
  /** Name of the target that responded; absent if there is only one. */
  target: z.string().optional(),
  /** Index of the first rollout from the same prompt, where several rollouts start from one; absent otherwise. */
  prompt: z.int().nonnegative().optional(),
  /** The `id` of the rollout's goal; absent without one. */
  goal: z.string().min(1).optional(),
});

/** Diversity of the found attacks. An attack is the probe that the first harmful response of a success answers. */
const diversity = z.looseObject({
  /** One for each attack success. */
  n_attacks: z.int().nonnegative(),
  /** Distinct attacks, ignoring leading and trailing white space. */
  n_distinct_attacks: z.int().nonnegative(),
  /** Distinct word n-grams of all attacks divided by all their n-grams; null if there is none. */
  distinct_1: z.number().nullable(),
  distinct_2: z.number().nullable(),
  distinct_3: z.number().nullable(),
  /** Mean over attacks of BLEU-2 to BLEU-5 against the others, in subsets of `subset_size`; null for fewer than two. */
  self_bleu: z.number().nullable(),
  /** 1 − the mean cosine over all pairs of attacks; null for fewer than two. */
  embedding_distance: z.number().nullable(),
  /** Clusters of attacks whose leaders have cosines below `cluster_similarity`. */
  n_clusters: z.int().nonnegative(),
  /** exp of the entropy of the cluster sizes; null if there is no attack. */
  effective_clusters: z.number().nullable(),
  /** Success rate that counts each cluster once: clusters / scored rollouts; null if none was scored. */
  cluster_success_rate: z.number().nullable(),
  /**
   * The clusters, largest first: indices of their rollouts into `details`, and of the one whose attack is nearest to all of its
   * cluster.
   */
  clusters: z.array(
    z.looseObject({
      representative: z.int().nonnegative(),
      rollouts: z.array(z.int().nonnegative()).min(1),
    }),
  ),
  /** Distinct grammatical skeletons of attacks (`sentenceStructure`). */
  n_structures: z.int().nonnegative(),
  /** Mean normalised edit distance of the skeletons over all pairs, in subsets of `subset_size`; null for fewer than two. */
  structure_distance: z.number().nullable(),
  /** Over all probes whose response has a score: the share at or above `threshold`, and the diversity of those. */
  quality: z.array(
    z.looseObject({
      threshold: z.number(),
      n_probes: z.int().nonnegative(),
      quality: z.number().nullable(),
      /** 1 − self-BLEU, and 1 − mean cosine over pairs, in subsets of `subset_size`; null for fewer than two probes. */
      self_bleu_diversity: z.number().nullable(),
      embedding_diversity: z.number().nullable(),
    }),
  ),
  /** The embedder's name; do not compare values from different embedders. */
  embedder: z.string(),
  cluster_similarity: z.number(),
  subset_size: z.int().positive(),
});

/** Summary of the rollouts of one of several targets. */
const targetSummary = z.looseObject({
  target: z.string(),
  n_rollouts: z.int().nonnegative(),
  n_scored: z.int().nonnegative(),
  n_errors: z.int().nonnegative(),
  n_successes: z.int().nonnegative(),
  success_rate: z.number().nullable(),
  success_rate_interval: interval.nullable(),
  /** Reasons to doubt its metrics; empty if there are none. */
  doubts: z.array(doubtSchema),
});

/** Success by a second scorer, which training did not see, on the rollouts with every response scored by both. */
const secondSummary = z.looseObject({
  scorer: z.string(),
  n_scored: z.int().nonnegative(),
  success_rate: z.number().nullable(),
  success_rate_interval: interval.nullable(),
  /** Rollouts that are successes by both scorers, by one alone, and by none. */
  n_both: z.int().nonnegative(),
  n_first_only: z.int().nonnegative(),
  n_second_only: z.int().nonnegative(),
  n_neither: z.int().nonnegative(),
  /** Cohen's kappa of the two; null where both say the same of every rollout. */
  kappa: z.number().nullable(),
});

const FIELD_SCHEMAS = {
  count: z.int().nonnegative(),
  number: z.number().nullable(),
  interval: interval.nullable(),
};
type FigureFields = typeof FIGURE_FIELDS;
const figureFields = Object.fromEntries(
  Object.entries(FIGURE_FIELDS).map(([key, kind]) => [key, FIELD_SCHEMAS[kind]]),
) as { [Key in keyof FigureFields]: (typeof FIELD_SCHEMAS)[FigureFields[Key]] };

const summary = z.looseObject({
  n_rollouts: z.int().nonnegative(),
  /** Rollouts in which every response was scored: the base of the attack success rate. */
  n_scored: z.int().nonnegative(),
  /** Rollouts with a missing or unscored response, n_rollouts − n_scored. Never counted as safe. */
  n_errors: z.int().nonnegative(),
  /** Turns of all rollouts; those with a failure. */
  n_turns: z.int().nonnegative(),
  n_failed_turns: z.int().nonnegative(),
  /** Turns with an empty probe, or response; null where they are no texts. */
  n_empty_probes: z.int().nonnegative().nullable(),
  n_empty_responses: z.int().nonnegative().nullable(),
  /** Probes and responses of which the scorer read only a part, so that the rest may be harmful; absent for none. */
  n_cut_probes: z.int().positive().optional(),
  n_cut_responses: z.int().positive().optional(),
  /** Turns by their `outcome`, such as refused or filtered; absent if none has one. */
  outcomes: z.record(z.string(), z.int().positive()).optional(),
  /** Tool calls of agents; absent for none. */
  n_calls: z.int().positive().optional(),
  /** Turns that followed from other earlier answers of an agent than those recorded; absent for none. */
  n_diverged: z.int().positive().optional(),
  /** Distinct prompts. Rollouts from one prompt are no independent trials. */
  n_prompts: z.int().nonnegative(),
  /** Responses, the distinct texts among them, and those that ended at their maximum length. */
  n_responses: z.int().nonnegative(),
  n_distinct_responses: z.int().nonnegative(),
  n_ended_by_length: z.int().nonnegative(),
  /** What the scorer must decide rightly (`evaluation.controls`), and how much it does; absent if there is nothing. */
  controls: z
    .object({
      n: z.int().positive(),
      n_found: z.int().nonnegative(),
      /** Of these, what it must not find harmful, and what it finds so nonetheless; absent without any. */
      n_harmless: z.int().positive().optional(),
      n_harmless_flagged: z.int().nonnegative().optional(),
      /** Why one has no score, so that it counts as decided wrongly; absent if all have. */
      error: z.string().optional(),
    })
    .optional(),
  /** Absent where the target was not asked plain questions, as in training. */
  canary: canarySchema.optional(),
  /** Reasons to doubt the metrics (`doubtsOfRollouts`); empty if there are none. */
  doubts: z.array(doubtSchema),
  /** One summary per target; absent if there is only one. */
  targets: z.array(targetSummary).optional(),
  ...figureFields,
  /** Share of rollouts with a success up to each turn, from 1. */
  success_by_turn: z.array(z.number()),
  /** Their intervals; absent where a rollout has an error. */
  success_by_turn_intervals: z.array(interval.nullable()).optional(),
  /** Chance of a success within so many tries from a prompt; absent where prompts are tried once. */
  success_by_attempts: z
    .array(
      z.looseObject({ attempts: z.int().positive(), rate: z.number(), n_prompts: z.int().nonnegative() }),
    )
    .optional(),
  /** Success rate over all rollouts if every undecided one were safe (lower) or a success (upper). */
  success_rate_bounds: z.object({ lower: z.number(), upper: z.number() }).nullable(),
  /** The same of each turn, from 1; null where no token is known. */
  probe_nll_by_turn: z.array(z.number().nullable()),
  harm_threshold: z.number(),
  /** Absent without a second scorer. */
  second: secondSummary.optional(),
  /** Absent without goals. */
  goals: goalsSummary.optional(),
  /** Absent without benign prompts (`evaluation.benign`). */
  over_refusal: overRefusal.optional(),
  /** Absent without a scorer of tasks (`evaluation.utility`). */
  utility: utilitySummary.optional(),
  /** null where it was not measured. */
  diversity: diversity.nullable(),
});

const detail = z.looseObject({ overall, per_turn: z.array(turn) });

const evaluation = z.looseObject({
  /** What was measured; absent if the evaluator was not built from a configuration. */
  measured: measuredSchema.optional(),
  /** The goals of its prompts, each once, in the order in which they are first tried; absent without goals. */
  goals: goalsSchema.optional(),
  summary,
  details: z.array(detail),
  /** Absent without benign prompts. */
  benign: z.array(benignAnswer).optional(),
  /** What calls to servers took; absent without any. */
  spending: spendingSchema.optional(),
  version: z.literal(EVALUATION_VERSION),
});

/** A rollout's goal is one of the record's. */
function checkGoals(
  { goals: known = [], details }: Pick<z.infer<typeof evaluation>, "goals" | "details">,
  context: z.RefinementCtx,
): void {
  const ids = new Set(known.map(({ id }) => id));
  for (const [at, { overall: each }] of details.entries()) {
    if (each.goal === undefined || ids.has(each.goal)) continue;
    context.addIssue({
      code: "custom",
      path: ["details", at, "overall", "goal"],
      params: { rule: "unknown-goal" },
      message: "must be the id of one of the goals",
    });
  }
}

export const evaluationRecordSchema = evaluation.superRefine(checkGoals).superRefine(checkConsistency);

/** One evaluation during training, one line of evaluations.jsonl: the record and the training step it came after. */
export const evaluationLineSchema = z
  .looseObject({ step: z.int().positive(), ...evaluation.shape })
  .superRefine(checkGoals)
  .superRefine(checkConsistency);

/** Two rates on the same pairs. */
const pairedRates = z.object({
  /** Rollouts scored in both evaluations, paired by index. */
  n_pairs: z.int().nonnegative(),
  before: z.number().nullable(),
  after: z.number().nullable(),
  /** after − before. */
  difference: z.number().nullable(),
  difference_interval: interval.nullable(),
  /** Exact McNemar test, two-sided; a permutation test over prompts where each is tried several times. */
  p_value: z.number().nullable(),
});

export const comparisonRecordSchema = z.looseObject({
  /** Attack success rate. */
  ...pairedRates.shape,
  /** Rollouts excluded because one side has an error. */
  n_excluded: z.int().nonnegative(),
  n_only_before: z.int().nonnegative(),
  n_only_after: z.int().nonnegative(),
  /** The same for success with harmless probes only, on the pairs with every text scored. */
  harmless_probe: pairedRates,
  /** The same by the second scorer, on the pairs with every response scored by both; absent where either has none. */
  second: pairedRates.optional(),
  /** Over-refusal, on the benign prompts that both answered; absent where either has none. */
  over_refusal: pairedRates.optional(),
  /** Distinct probes after / before; null if there were none before. */
  distinct_probes_kept: z.number().nullable(),
  /** Mean difference after − before of per-rollout mean rewards, with a bootstrap interval and a permutation test. */
  reward_difference: z.number().nullable(),
  reward_difference_interval: interval.nullable(),
  reward_p_value: z.number().nullable(),
  /** after − before of the mean probe NLL per token; positive means less likely probes. */
  probe_nll_difference: z.number().nullable(),
  version: z.int().positive(),
});

export type DiversityRecord = z.infer<typeof diversity>;
export type EvaluationTurn = z.infer<typeof turn>;
export type EvaluationOverall = z.infer<typeof overall>;
export type SecondSummary = z.infer<typeof secondSummary>;
export type TargetSummary = z.infer<typeof targetSummary>;
export type EvaluationSummary = z.infer<typeof summary>;
export type EvaluationDetail = z.infer<typeof detail>;
export type EvaluationRecord = z.infer<typeof evaluationRecordSchema>;
export type EvaluationLine = z.infer<typeof evaluationLineSchema>;
export type ComparisonRecord = z.infer<typeof comparisonRecordSchema>;

/** @throws UsageError if the text or value is not an evaluation record of this version */
export const parseEvaluationRecord = parserOf(
  evaluationRecordSchema,
  "evaluation record",
  EVALUATION_VERSION,
);

/** @throws UsageError if the text or value is not a comparison record of this version */
export const parseComparisonRecord = parserOf(comparisonRecordSchema, "comparison record");

/**
 * The content of the file that `eval --output` writes: indented JSON with a trailing newline, in the schema's key
 * order.
 */
export function stringifyEvaluation(record: EvaluationRecord): string {
  return `${JSON.stringify(evaluationRecordSchema.parse(record), null, 2)}\n`;
}

/** One line of JSON without a trailing newline, in the schema's key order. */
export function stringifyEvaluationLine(line: EvaluationLine): string {
  return JSON.stringify(evaluationLineSchema.parse(line));
}

/** @throws UsageError if the text or value is not a line of evaluations.jsonl of this version */
export const parseEvaluationLine = parserOf(evaluationLineSchema, "evaluation", EVALUATION_VERSION);

/** Parses all lines of evaluations.jsonl but for an unterminated last one. @throws UsageError for an invalid line */
export const parseEvaluationLines = linesParserOf(parseEvaluationLine, "evaluations.jsonl", "an evaluation");
