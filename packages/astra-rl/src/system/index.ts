// Models behind one interface, and what a turn is worth. A system must not know samplers, algorithms or training.
export { ASTSystem, type ASTSystemOptions } from "./ast-system.js";
export {
  astReward,
  resolveReward,
  type ASTReward,
  type ASTRewardOptions,
  type TurnFacts,
} from "./ast-reward.js";
