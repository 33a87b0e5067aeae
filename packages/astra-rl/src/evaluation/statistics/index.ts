/** Statistics as pure functions of numbers and counts. Must not know: models, graphs, files. */

export {
  logGamma,
  normalCdf,
  normalQuantile,
  regularizedIncompleteBeta,
  studentTCdf,
  studentTQuantile,
} from "./distributions.js";
export {
  predictionPoweredRate,
  roganGladenRate,
  type JudgedSample,
  type JudgedTotal,
} from "./corrected-rate.js";
export type { Interval } from "./interval.js";
export { mean, meanInterval, seedInterval, standardDeviation } from "./mean.js";
export { clusteredInterval, FEWEST_GROUPS, type Group } from "./clustered-proportion.js";
export {
  cohenKappa,
  exactMcNemar,
  exactUpperBound,
  fewestTrials,
  holmAdjusted,
  newcombePairedDifference,
  wilsonInterval,
  type PairedCounts,
} from "./proportion.js";
export {
  bootstrapMean,
  pairedBootstrap,
  pairedPermutation,
  quantile,
  type BootstrapOptions,
  type ResamplingOptions,
} from "./resampling.js";
