import { fileURLToPath } from "node:url";
import {
  Command,
  CommanderError,
  InvalidArgumentError,
  type CommandUnknownOpts,
} from "@commander-js/extra-typings";
import { distributed } from "@astra-rl/torch";
import { packageVersion } from "@astra-rl/assembly";
import {
  EndedTogetherError,
  explain,
  EXIT,
  codeAfterWriting,
  setProgram,
  watchStandardStreams,
  type Streams,
} from "@astra-rl/assembly/command";
import { CONTRIB_COMMANDS } from "@astra-rl/contrib/commands";
import { printable } from "@astra-rl/report";
import "./kinds.js";
import { compareCommand } from "./commands/compare.js";
import { completionCommand } from "./commands/completion.js";
import { demoCommand } from "./commands/demo.js";
import { doctorCommand } from "./commands/doctor.js";
import { evalCommand } from "./commands/eval.js";
import { exportCommand } from "./commands/export.js";
import { gateCommand } from "./commands/gate.js";
import { initCommand } from "./commands/init.js";
import { reportCommand } from "./commands/report.js";
import { rolloutCommand } from "./commands/rollout.js";
import { searchCommand } from "./commands/search.js";
import { serveCommand } from "./commands/serve.js";
import { setupCommand } from "./commands/setup.js";
import { encodeCommand, generateCommand, logprobsCommand, scoreCommand } from "./commands/text-commands.js";
import { trainCommand } from "./commands/train.js";
import { viewCommand } from "./commands/view.js";

/** In the order of the help. */
export const COMMANDS: readonly ((streams: Streams) => CommandUnknownOpts)[] = [
  demoCommand,
  initCommand,
  trainCommand,
  searchCommand,
  evalCommand,
  compareCommand,
  gateCommand,
  reportCommand,
  viewCommand,
  exportCommand,
  ...CONTRIB_COMMANDS,
  rolloutCommand,
  logprobsCommand,
  generateCommand,
  scoreCommand,
  encodeCommand,
  serveCommand,
  doctorCommand,
  setupCommand,
];

const EXPERIMENTAL: ReadonlySet<(typeof COMMANDS)[number]> = new Set(CONTRIB_COMMANDS);

/**
 * Runs one command line; never throws.
 *
 * @param args arguments without node and the script
 * @returns the exit code
 */
export async function main(args: readonly string[], streams: Streams = process): Promise<number> {
  return codeAfterWriting(await run(args, streams));
}

async function run(args: readonly string[], streams: Streams): Promise<number> {
  const program = new Command("astra-rl")
    .description(
      "Trains a tester language model to find likely prompts that make a target misbehave, and evaluates targets with it.",
    )
    .version(packageVersion)
    .showSuggestionAfterError()
    .configureHelp({ sortSubcommands: false });
  const experimental: string[] = [];
  for (const create of COMMANDS) {
    const command = create(streams);
    program.addCommand(command);
    if (EXPERIMENTAL.has(create)) experimental.push(command.name());
  }
  program.addHelpText("after", `\nExperimental: ${experimental.join(", ")}; train --seeds and --grid.`);
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
    const rank = distributed.rank();
    streams.stderr.write(`astra-rl${rank === 0 ? "" : ` (rank ${rank})`}: ${line}\n`);
    if (process.env.ASTRA_RL_DEBUG && error instanceof Error) streams.stderr.write(`${error.stack}\n`);
    return code;
  }
}

setProgram(fileURLToPath(new URL("../bin/astra-rl.js", import.meta.url)));
watchStandardStreams();
