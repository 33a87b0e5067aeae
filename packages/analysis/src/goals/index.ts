export { chanceWithin, successWithin } from "./attempts.js";
export {
  boundsWithin,
  chanceOfBeta,
  extrapolate,
  fitBetaBinomial,
  type BetaRates,
  type Extrapolated,
  type Extrapolation,
  type ExtrapolationOptions,
} from "./beta-binomial.js";
export { budgetUntil, type Budget, type Try } from "./budget.js";
export { summarizeGoals } from "./summarize-goals.js";
