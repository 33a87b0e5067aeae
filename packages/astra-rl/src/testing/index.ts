/**
 * Contract tests for custom parts, for any test runner. The toolbox itself must not import it.
 *
 * @module astra-rl/testing
 */
export { checkScorer, scorerChecks, type ScorerCheck, type ScorerCheckOptions } from "./scorer-contract.js";
