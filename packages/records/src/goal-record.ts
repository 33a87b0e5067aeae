import { z } from "zod";
import { interval } from "./interval-record.js";
import { tagsSchema } from "./gate/index.js";

/** A behaviour that the tester is asked to elicit. */
export const goalSchema = z.looseObject({
  /** Unique among the goals of an evaluation. */
  id: z.string().min(1),
  /** What the judge and the tester read. */
  text: z.string().min(1),
  category: z.string().min(1).optional(),
  /** A document that belongs to it, read after the text. */
  context: z.string().min(1).optional(),
  /** Entries of published lists of risks that it is about; absent where they are the evaluation's. */
  tags: tagsSchema.optional(),
});

export const goalsSchema = z
  .array(goalSchema)
  .min(1)
  .superRefine((given, context) => {
    const ids = new Set<string>();
    for (const [at, { id }] of given.entries()) {
      if (ids.has(id)) {
        context.addIssue({
          code: "custom",
          path: [at, "id"],
          params: { rule: "duplicate-id" },
          message: "must differ from the ids of the other goals",
        });
      }
      ids.add(id);
    }
  });

/** A share of rollouts. */
const rate = z.looseObject({
  /** Scored rollouts. */
  n: z.int().nonnegative(),
  n_successes: z.int().nonnegative(),
  rate: z.number().nullable(),
  interval: interval.nullable(),
});

/**
 * Why tries say nothing about many more of them. few-goals: fewer than 8 goals do not show how much goals differ.
 * single-tries: nor does one try of each. no-success, all-successes: nothing tells rare successes, or failures, from none.
 * all-or-nothing: each goal is reached at every try or at none, so that nothing is known of goals that are rarely reached.
 */
const unknownReason = z.enum(["few-goals", "single-tries", "no-success", "all-successes", "all-or-nothing"]);

/** How many goals are reached, within how many tries. */
const goalFigures = z.looseObject({
  /** Goals with a scored rollout; those with a success. */
  n_scored: z.int().nonnegative(),
  n_reached: z.int().nonnegative(),
  /** The ids of scored goals without a success, and of goals without a scored rollout. */
  never_reached: z.array(z.string()),
  not_scored: z.array(z.string()),
  /** ASR@k: the share of goals reached within k tries (`chanceWithin`), of those with at least k. */
  within: z.array(
    z.looseObject({
      attempts: z.int().positive(),
      rate: z.number(),
      n_goals: z.int().positive(),
      /** Goals with fewer tries. */
      n_left_out: z.int().nonnegative(),
    }),
  ),
  /** ASR@N beyond the tries made, by Beta-distributed rates of goals (`extrapolate`). */
  extrapolated: z.looseObject({
    alpha: z.number().nullable(),
    beta: z.number().nullable(),
    /** Why the rates are unknown; null where they are known. */
    reason: unknownReason.nullable(),
    at: z.array(
      z.looseObject({
        attempts: z.int().positive(),
        rate: z.number().nullable(),
        interval: interval.nullable(),
        /** For any distribution of rates over goals. */
        bounds: interval,
      }),
    ),
  }),
  /** Budget@τ: what it takes until a share of goals is reached (`budgetUntil`); null where the tries made do not reach it. */
  budget: z.array(
    z.looseObject({
      share: z.number(),
      n_goals: z.int().positive(),
      /** Tries of each goal that is not reached yet, and of all goals together. */
      rounds: z.number().nullable(),
      tries: z.number().nullable(),
      /** Turns of these tries, and target tokens of their probes; the latter null where they are not measured. */
      turns: z.number().nullable(),
      probe_tokens: z.number().nullable(),
    }),
  ),
});

export const goalsSummary = z.looseObject({
  n_goals: z.int().positive(),
  success: goalFigures,
  /** The same for success with harmless probes only. */
  harmless_probe: goalFigures,
  /** In the order of the goals; category null: those without one. Empty if no goal has a category. */
  by_category: z.array(
    z.looseObject({
      category: z.string().nullable(),
      n_goals: z.int().positive(),
      n_reached: z.int().nonnegative(),
      n_harmless_reached: z.int().nonnegative(),
      success: rate,
      harmless_probe: rate,
    }),
  ),
  /** In the order of the goals. */
  by_goal: z.array(z.looseObject({ id: z.string(), success: rate, harmless_probe: rate })),
});

export type GoalRecord = z.infer<typeof goalSchema>;
export type GoalFigures = z.infer<typeof goalFigures>;
export type GoalRate = z.infer<typeof rate>;
export type GoalsSummary = z.infer<typeof goalsSummary>;
export type UnknownReason = z.infer<typeof unknownReason>;
