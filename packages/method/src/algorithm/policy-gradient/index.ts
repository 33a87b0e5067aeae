export { A2C, a2cKind, type A2COptions } from "./a2c.js";
export {
  BaselineAdvantage,
  SiblingAdvantage,
  ValueAdvantage,
  type AdvantageEstimator,
  type EstimatedTurn,
} from "./advantages.js";
export {
  generalizedAdvantages,
  type GeneralizedAdvantageOptions,
  type ValuedTurn,
} from "./generalized-advantages.js";
export { groupAdvantages, type GroupAdvantageOptions } from "./group-advantages.js";
export { GRPO, grpoKind, type GRPOOptions } from "./grpo.js";
export { KLController } from "./kl-controller.js";
export { normalizeAdvantages } from "./normalize-advantages.js";
export { PolicyGradient } from "./policy-gradient.js";
export type { PolicyGradientOptions } from "./policy-options.js";
export type {
  PolicyBatch,
  PolicyBranch,
  PolicyGradientParts,
  PolicyLoss,
  PolicyLossInputs,
  PolicyTurn,
  PreparedTurn,
} from "./policy-types.js";
export { PPO, ppoKind, type PPOOptions } from "./ppo.js";
export { REINFORCE, reinforceKind, type REINFORCEOptions } from "./reinforce.js";
export { RLOO, rlooKind, type RLOOOptions } from "./rloo.js";
export { Supervised, supervisedKind, type SupervisedOptions } from "./supervised.js";
