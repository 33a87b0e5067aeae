export { checkScorer, scorerChecks, type ScorerCheck, type ScorerCheckOptions } from "./scorer-contract.js";
