import { UsageError, parseOptions } from "@astra-rl/base";
import { z } from "zod";
import { defineKind, type Scorer } from "@astra-rl/method";
import { MappedScorer } from "./mapped-scorer.js";

/**
 * Maps a score to a probability. The parameters are fitted elsewhere, on labeled texts; here they are only applied.
 *
 * - `platt`: sigmoid(slope · score + intercept). Platt (1999), eq. 1, writes 1 / (1 + exp(A·f + B)): slope = −A,
 *   intercept = −B. With intercept 0 and slope 1/T it is temperature scaling of a logit.
 * - `isotonic`: linear interpolation between `points` (score, probability), constant outside of them: the result of
 *   isotonic regression (Zadrozny & Elkan, 2002), which scikit-learn stores as `X_thresholds_` and `y_thresholds_`.
 * - `min-max`: (score − minimum) / (maximum − minimum), 0 below and 1 above.
 */
export type Calibration =
  | { method: "platt"; slope: number; intercept: number }
  | { method: "isotonic"; points: readonly (readonly [score: number, probability: number])[] }
  | { method: "min-max"; minimum: number; maximum: number };

/** Applies a calibration to a score. */
export function calibrate(score: number, calibration: Calibration): number {
  if (calibration.method === "platt") {
    return 1 / (1 + Math.exp(-(calibration.slope * score + calibration.intercept)));
  }
  if (calibration.method === "min-max") {
    const { minimum, maximum } = calibration;
    return Math.min(1, Math.max(0, (score - minimum) / (maximum - minimum)));
  }
  const { points } = calibration;
  const above = points.findIndex(([at]) => at >= score);
  if (above === 0) return points[0]![1];
  if (above < 0) return points.at(-1)![1];
  const [[x0, y0], [x1, y1]] = [points[above - 1]!, points[above]!];
  // Rounding must not exceed the range of the points.
  return Math.min(y1, y0 + ((y1 - y0) * (score - x0)) / (x1 - x0));
}

const PARAMETERS = {
  slope: z.number().optional().describe("Platt: sigmoid(slope · score + intercept)"),
  intercept: z.number().optional().describe("Platt: intercept, see slope"),
  points: z
    .array(z.tuple([z.number(), z.number().min(0).max(1)]))
    .min(1)
    .optional()
    .describe("Isotonic: pairs [score, probability], ascending; interpolated linearly"),
  minimum: z.number().optional().describe("Min-max: score that is mapped to 0"),
  maximum: z.number().optional().describe("Min-max: score that is mapped to 1"),
};
const method = z
  .enum(["platt", "isotonic", "min-max"])
  .describe("Calibration method. platt: slope and intercept; isotonic: points; min-max: minimum and maximum");
// `problemOf` validates the points.
const codeOptions = z.strictObject({ method, ...PARAMETERS, points: z.array(z.unknown()).optional() });

/**
 * Maps a scorer on any scale to probabilities. Labels are assumed to be on the same scale as the score and mapped
 * alike.
 */
export class CalibratedScorer extends MappedScorer {
  /** @throws UsageError for points that are not ascending, and an empty range */
  constructor(
    part: Scorer,
    readonly calibration: Calibration,
  ) {
    super(part, "any");
    parseOptions("calibrated", codeOptions, calibration);
    const problem = problemOf(calibration);
    if (problem === null) return;
    const [rule, parameter, requirement] = problem;
    throw new UsageError(rule, `calibrated: ${parameter} ${requirement}`);
  }

  protected override mapScore(score: number): number {
    return calibrate(score, this.calibration);
  }
}

/** The code of the first broken rule, the parameter that breaks it, and what it must be; null if all are valid. */
function problemOf(calibration: Calibration): [rule: string, parameter: string, requirement: string] | null {
  if (calibration.method === "min-max") {
    const { minimum, maximum } = calibration;
    if (minimum < maximum) return null;
    return ["empty-range", "minimum", `must be less than maximum, got ${minimum} and ${maximum}`];
  }
  if (calibration.method === "platt") return null;
  const { points } = calibration;
  if (points.length === 0) return ["empty", "points", "must not be empty"];
  for (const [index, [score, probability]] of points.entries()) {
    if (!(probability >= 0 && probability <= 1)) {
      return [
        "out-of-range",
        "points",
        `must have probabilities from 0 to 1, got ${probability} at [${index}]`,
      ];
    }
    const before = points[index - 1];
    if (before === undefined || (score > before[0] && probability >= before[1])) continue;
    return [
      "not-ascending",
      "points",
      `must ascend in score and never fall in probability, got [${before.join(", ")}] before [${score}, ${probability}]`,
    ];
  }
  return null;
}

const OPTIONS = {
  platt: ["slope", "intercept"],
  isotonic: ["points"],
  "min-max": ["minimum", "maximum"],
} as const;

export const calibratedScorerKind = defineKind({
  role: "scorer",
  name: "calibrated",
  summary: "Calibrates a scorer on any scale to probabilities",
  schema: ({ scorer }) =>
    z
      .strictObject({
        scorer,
        method,
        ...PARAMETERS,
      })
      .superRefine(({ method, ...given }, context) => {
        const issue = (rule: string, key: string, message: string) =>
          context.addIssue({ code: "custom", path: [key], message, params: { rule } });
        const own: readonly string[] = OPTIONS[method];
        for (const key of Object.values(OPTIONS).flat()) {
          const isGiven = given[key] !== undefined;
          if (isGiven && !own.includes(key))
            issue("inapplicable-option", key, `does not belong to method ${method}`);
          if (!isGiven && own.includes(key)) issue("missing-key", key, `is required with method ${method}`);
        }
        if (own.some((key) => given[key as keyof typeof given] === undefined)) return;
        const problem = problemOf({ method, ...given } as Calibration);
        if (problem !== null) issue(...problem);
      }),
  make: async ({ scorer, ...calibration }, { makeScorer }) =>
    new CalibratedScorer(await makeScorer(scorer), calibration as Calibration),
});
