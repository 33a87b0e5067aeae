export type { ContractCheck } from "./contract-checks.js";
export { checkGoals, goalChecks, type GoalExchange } from "./goal-contract.js";
export { checkScorer, scorerChecks, type ScorerCheckOptions } from "./scorer-contract.js";
export { checkSystem, systemChecks, type SystemCheckOptions } from "./system-contract.js";
