/**
 * The records of runs and evaluations, for programs that read them.
 *
 * @module astra-rl/records
 */
export * from "@astra-rl/records";
