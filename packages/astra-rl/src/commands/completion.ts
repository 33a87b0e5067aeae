import { Argument, Command, type CommandUnknownOpts } from "@commander-js/extra-typings";
import { createOutput, type Streams } from "@astra-rl/assembly/program";

const SHELLS = ["bash", "zsh", "fish"] as const;

/**
 * `astra-rl completion SHELL`: prints a script that completes commands and options.
 *
 * @param commands the commands listed in the help
 */
export function completionCommand(streams: Streams, commands: () => readonly CommandUnknownOpts[]) {
  return new Command("completion")
    .description("Print a script that completes commands and options in a shell")
    .addArgument(new Argument("<shell>", "which shell").choices(SHELLS))
    .addHelpText("after", "\nFor bash: source <(astra-rl completion bash)")
    .action((shell) => {
      const output = createOutput(streams);
      for (const line of shell === "fish" ? fishLines(commands()) : bashLines(commands(), shell)) {
        output.result(line);
      }
    });
}

/** The long names of a command's options, `--help` included. */
const namesOf = (command: CommandUnknownOpts) => [
  ...command.options.map(({ long }) => long).filter((name) => typeof name === "string"),
  "--help",
];

/** Completions of an option's value: its choices if known, otherwise file names. */
const choicesOf = (command: CommandUnknownOpts) =>
  command.options.flatMap(({ long, argChoices }) =>
    argChoices === undefined ? [] : [`      ${long}) words="${argChoices.join(" ")}" ;;`],
  );

/** zsh uses its bash emulation. */
function bashLines(commands: readonly CommandUnknownOpts[], shell: "bash" | "zsh"): string[] {
  const cases = commands.flatMap((command) => [
    `    ${command.name()})`,
    `      words="${namesOf(command).join(" ")}"`,
    `      case "$previous" in`,
    ...choicesOf(command),
    "      esac ;;",
  ]);
  return [
    ...(shell === "zsh" ? ["autoload -U +X bashcompinit && bashcompinit"] : []),
    "_astra_rl() {",
    `  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words=""`,
    '  if [ "$COMP_CWORD" -eq 1 ]; then',
    `    words="${commands.map((command) => command.name()).join(" ")} --help --version"`,
    "  else",
    '    case "${COMP_WORDS[1]}" in',
    ...cases,
    "    esac",
    "  fi",
    '  COMPREPLY=($(compgen -W "$words" -- "$current") $([ "$COMP_CWORD" -gt 1 ] && compgen -f -- "$current"))',
    "}",
    "complete -o filenames -F _astra_rl astra-rl",
  ];
}

function fishLines(commands: readonly CommandUnknownOpts[]): string[] {
  const quoted = (text: string) => `'${text.replaceAll(/['\\]/g, "\\$&")}'`;
  return commands.flatMap((command) => {
    const name = command.name();
    const within = `complete -c astra-rl -n '__fish_seen_subcommand_from ${name}'`;
    return [
      `complete -c astra-rl -n __fish_use_subcommand -f -a ${name} -d ${quoted(command.description())}`,
      ...command.options.map(({ long, description, argChoices, required, optional }) => {
        const values = argChoices === undefined ? "" : ` -x -a ${quoted(argChoices.join(" "))}`;
        const takesValue = values === "" && (required || optional) ? " -r" : "";
        return `${within} -l ${long!.slice(2)}${takesValue}${values} -d ${quoted(description)}`;
      }),
    ];
  });
}
