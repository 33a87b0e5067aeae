export { FEWEST_GROUPS, clusteredInterval, type Group } from "./clustered-proportion.js";
export {
  predictionPoweredRate,
  roganGladenRate,
  type JudgedSample,
  type JudgedTotal,
} from "./corrected-rate.js";
export {
  logGamma,
  normalCdf,
  normalQuantile,
  regularizedIncompleteBeta,
  studentTCdf,
  studentTQuantile,
} from "./distributions.js";
export type { Interval } from "./interval.js";
export { mean, meanInterval, seedInterval, standardDeviation } from "./mean.js";
export {
  cohenKappa,
  exactLowerBound,
  exactMcNemar,
  exactUpperBound,
  fewestTrials,
  holmAdjusted,
  newcombePairedDifference,
  pairedCounts,
  requireCounts,
  type PairedCounts,
  wilsonInterval,
} from "./proportion.js";
export {
  bootstrapMean,
  pairedBootstrap,
  pairedPermutation,
  quantile,
  type BootstrapOptions,
  type ResamplingOptions,
} from "./resampling.js";
