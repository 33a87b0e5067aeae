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
export {
  clusteredWilsonInterval,
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
  bootstrapInterquartileMean,
  bootstrapMean,
  interquartileMean,
  pairedBootstrap,
  pairedPermutation,
  quantile,
  type BootstrapOptions,
  type ResamplingOptions,
} from "./resampling.js";
