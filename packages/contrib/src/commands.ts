/**
 * The experimental commands, and the options of sweeps.
 *
 * @module @astra-rl/contrib/commands
 */
export { auditCommand } from "./audit/audit-command.js";
export { cardCommand, checkpointFormat, writeCard } from "./card/card-command.js";
export { hardenCommand } from "./harden/harden-command.js";
export { replayCommand } from "./replay/replay-command.js";
export { gridOption, runSweep, seedsOption, settingsOf } from "./sweep/sweep-command.js";
