export type { ContractCheck } from "./contract-checks.js";
export { checkScorer, scorerChecks, type ScorerCheckOptions } from "./scorer-contract.js";
export { checkSystem, systemChecks, type SystemCheckOptions } from "./system-contract.js";
