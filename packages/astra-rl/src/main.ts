import { fileURLToPath } from "node:url";
import {
  Command,
  CommanderError,
  InvalidArgumentError,
  type CommandUnknownOpts,
} from "@commander-js/extra-typings";
import { rank } from "@astra-rl/torch/distributed";
import { packageVersion } from "@astra-rl/base";
import {
  EndedTogetherError,
  explain,
  EXIT,
  codeAfterWriting,
  setProgram,
  watchLateErrors,
  watchStandardStreams,
  type Streams,
} from "@astra-rl/assembly/program";
import { CONTRIB_COMMANDS } from "@astra-rl/contrib/commands";
import { printable } from "@astra-rl/report";
import { completionCommand } from "./commands/completion.js";

type MakeCommand = (streams: Streams) => CommandUnknownOpts;

/**
 * Loads each command, in the order of the help. Modules take longer to load than most commands run, so that only the named
 * command is loaded, and all of them for the help.
 */
export const COMMANDS: Readonly<Record<string, () => Promise<MakeCommand>>> = {
  demo: async () => (await import("./commands/demo.js")).demoCommand,
  init: async () => (await import("./commands/init.js")).initCommand,
  train: async () => (await import("./commands/train.js")).trainCommand,
  search: async () => (await import("./commands/search.js")).searchCommand,
  eval: async () => (await import("./commands/eval.js")).evalCommand,
  compare: async () => (await import("./commands/compare.js")).compareCommand,
  gate: async () => (await import("./commands/gate.js")).gateCommand,
  report: async () => (await import("./commands/report.js")).reportCommand,
  view: async () => (await import("./commands/view.js")).viewCommand,
  export: async () => (await import("./commands/export.js")).exportCommand,
  ...CONTRIB_COMMANDS,
  rollout: async () => (await import("./commands/rollout.js")).rolloutCommand,
  logprobs: async () => (await import("./commands/text-commands.js")).logprobsCommand,
  generate: async () => (await import("./commands/text-commands.js")).generateCommand,
  score: async () => (await import("./commands/text-commands.js")).scoreCommand,
  encode: async () => (await import("./commands/text-commands.js")).encodeCommand,
  serve: async () => (await import("./commands/serve.js")).serveCommand,
  doctor: async () => (await import("./commands/doctor.js")).doctorCommand,
  setup: async () => (await import("./commands/setup.js")).setupCommand,
};

/**
 * Runs one command line. Throws only if a module cannot be loaded.
 *
 * @param args arguments without node and the script
 * @returns the exit code
 */
export async function main(args: readonly string[], streams: Streams = process): Promise<number> {
  const late = watchLateErrors((line) => void streams.stderr.write(`${line}\n`));
  try {
    const code = await codeAfterWriting(await run(args, streams));
    return code === EXIT.done && late.count > 0 ? EXIT.failed : code;
  } finally {
    // Timers of an agent may fire until the process ends.
    if (streams === process) late.outlive();
    else late.end();
  }
}

/** What the arguments need: the command that they name, and every command where they name none. */
function needed([name]: readonly string[]): readonly (() => Promise<MakeCommand>)[] {
  return name !== undefined && Object.hasOwn(COMMANDS, name) ? [COMMANDS[name]!] : Object.values(COMMANDS);
}

async function run(args: readonly string[], streams: Streams): Promise<number> {
  const program = new Command("astra-rl")
    .description(
      "Trains a tester language model to find likely prompts that make a target misbehave, and evaluates targets with it.",
    )
    .version(packageVersion)
    .showSuggestionAfterError()
    .configureHelp({ sortSubcommands: false });
  for (const make of await Promise.all(needed(args).map((load) => load()))) program.addCommand(make(streams));
  const experimental = Object.keys(CONTRIB_COMMANDS).join(", ");
  program.addHelpText("after", `\nExperimental: ${experimental}; train --seeds and --grid.`);
  program.addCommand(completionCommand(streams, () => program.commands));
  for (const command of [program, ...program.commands]) {
    command.exitOverride().configureOutput({
      writeOut: (text) => void streams.stdout.write(text),
      writeErr: (text) => void streams.stderr.write(text),
      outputError: (text, write) => write(printable(text.replace(/^error: /, "astra-rl: "))),
    });
  }
  try {
    if (args.length === 0) {
      streams.stderr.write(program.helpInformation());
      return EXIT.usage;
    }
    await program.parseAsync([...args], { from: "user" });
    return EXIT.done;
  } catch (error) {
    // commander has already printed its message; --help and --version exit with code 0.
    if (error instanceof CommanderError && !(error instanceof InvalidArgumentError)) {
      return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    }
    if (error instanceof EndedTogetherError) return error.code;
    const { code, line } = explain(error);
    streams.stderr.write(`astra-rl${rank() === 0 ? "" : ` (rank ${rank()})`}: ${line}\n`);
    if (process.env.ASTRA_RL_DEBUG && error instanceof Error) streams.stderr.write(`${error.stack}\n`);
    return code;
  }
}

setProgram(fileURLToPath(new URL("../bin/astra-rl.js", import.meta.url)));
watchStandardStreams();
