/**
 * The figures of an evaluation, without anything that needs Node.
 *
 * @module astra-rl/records/figures
 */
export * from "@astra-rl/records/figures";
