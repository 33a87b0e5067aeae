/**
 * What `astra-rl train` uses: sweeps, and the card of a trained tester.
 *
 * @module @astra-rl/contrib/training
 */
export { checkpointFormat, writeCard } from "./card/card-command.js";
export { gridOption, runSweep, seedsOption, settingsOf } from "./sweep/sweep-command.js";
