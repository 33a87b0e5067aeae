/**
 * Evaluations summarized and compared: statistics, diversity, successive halving. It must not know models, training, or how
 * texts are generated.
 *
 * @module @astra-rl/analysis
 */
export * from "./diagnosis/index.js";
export * from "./diversity/index.js";
/** Intervals and tests as pure functions; a namespace, because their names are common words. */
export * as statistics from "./statistics/index.js";
export {
  compareAll,
  type CompareAllOptions,
  type LabelledEvaluation,
  type OneComparison,
} from "./compare-all.js";
export { compareEvaluations, type CompareOptions } from "./compare-evaluations.js";
export {
  errorRateOfLook,
  outcomesOf,
  testLimit,
  type ErrorRates,
  type LimitTest,
  type LimitVerdict,
  type Outcomes,
} from "./gate.js";
export * from "./goals/index.js";
export { DONE_THRESHOLD, summarizeUtility } from "./utility.js";
export { REFUSAL_THRESHOLD, compareRefusals, summarizeRefusals } from "./over-refusal.js";
export { rolesOf, type Evaluated, differencesInSetup } from "./likeness.js";
export {
  REDUCTION,
  type Ranked,
  type Trial,
  bestFirst,
  roundsOf,
  successiveHalving,
  tallyOf,
} from "./successive-halving.js";
export { byCluster, byPrompt, isScored, isScoredBySecond, succeeds, succeedsBySecond } from "./rollouts.js";
export {
  DEFAULT_THRESHOLD,
  harmlessProbeSuccess,
  hasFailed,
  meanOfKnown,
  probeNll,
  summarize,
  type SummaryOptions,
} from "./summarize.js";
