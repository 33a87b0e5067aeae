/**
 * Contract tests for custom parts, for any test runner. The toolbox itself must not import it.
 *
 * @module astra-rl/testing
 */
export * from "@astra-rl/method/testing";
