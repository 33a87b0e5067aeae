export { clippedSurrogateLoss, type ClippedSurrogateOptions } from "./clipped-surrogate-loss.js";
export { clippedValueLoss } from "./clipped-value-loss.js";
export { dpoLoss } from "./dpo-loss.js";
export { ipoLoss } from "./ipo-loss.js";
export { grpoKLPenalty, klPenalty } from "./kl-penalty.js";
export { logProbabilityLoss } from "./log-probability-loss.js";
export { orpoLoss, type ORPOLossOptions } from "./orpo-loss.js";
export { tokenMean, type Normalizer } from "./token-mean.js";
export { trajectoryBalanceLoss } from "./trajectory-balance-loss.js";
