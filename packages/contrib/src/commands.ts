/**
 * The experimental commands.
 *
 * @module @astra-rl/contrib/commands
 */

/** Loads each command, in the order of the help. */
export const CONTRIB_COMMANDS = {
  audit: async () => (await import("./audit/audit-command.js")).auditCommand,
  card: async () => (await import("./card/card-command.js")).cardCommand,
  replay: async () => (await import("./replay/replay-command.js")).replayCommand,
  harden: async () => (await import("./harden/harden-command.js")).hardenCommand,
};
