/**
 * The experimental commands, and the options of sweeps.
 *
 * @module @astra-rl/contrib/commands
 */
import { auditCommand } from "./audit/audit-command.js";
import { cardCommand } from "./card/card-command.js";
import { hardenCommand } from "./harden/harden-command.js";
import { replayCommand } from "./replay/replay-command.js";

/** In the order of the help. */
export const CONTRIB_COMMANDS = [auditCommand, cardCommand, replayCommand, hardenCommand] as const;

export { checkpointFormat, writeCard } from "./card/card-command.js";
export { gridOption, runSweep, seedsOption, settingsOf } from "./sweep/sweep-command.js";
