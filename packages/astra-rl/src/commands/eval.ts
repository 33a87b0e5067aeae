import { Command, Option } from "@commander-js/extra-typings";
import { distributed } from "@astra-rl/torch";
import { evaluate, PROMPT_SPLITS } from "@astra-rl/assembly";
import {
  acceptCanaryOption,
  evaluationProgress,
  showEvaluation,
  downloadNotes,
  loggerOf,
  setOption,
  testerOption,
  testerOverride,
  untilInterrupted,
  inProcesses,
  processesOption,
} from "@astra-rl/assembly/command";
import { quietOption, createOutput, type Output, type Streams } from "@astra-rl/assembly/program";
import { repeatsAdvice } from "@astra-rl/report";
import "@astra-rl/contrib/kinds";

const declared = () =>
  new Command("eval")
    .description("Evaluate the tester against the target on held-out prompts")
    .argument("<config>", "configuration file")
    .addOption(testerOption())
    .addOption(
      new Option("--split <name>", "prompts to evaluate on").choices(PROMPT_SPLITS).default("test" as const),
    )
    .option(
      "--output <file>",
      'write the full record to this file, as JSON with summary and details; "-" is standard output',
    )
    .addOption(acceptCanaryOption())
    .addOption(setOption())
    .option("--json", "print the full record as JSON instead of a table", false)
    .addOption(quietOption())
    .addOption(processesOption());

type EvalOptions = ReturnType<ReturnType<typeof declared>["opts"]>;

/** `astra-rl eval CONFIG`: single-path rollouts from held-out prompts, with metrics per turn, per rollout and overall. */
export const evalCommand = (streams: Streams) =>
  declared().action(async (config, { processes = 1, ...options }, command) => {
    const output = createOutput(streams, { quiet: options.quiet, isRanked: true });
    await inProcesses(processes, command, output, () => evaluateFrom(config, options, output));
  });

async function evaluateFrom(
  config: string,
  { split, output: file, json, set = [], tester, accept }: EvalOptions,
  output: Output,
): Promise<void> {
  const record = await untilInterrupted(output, (hooks) =>
    evaluate({
      configuration: config,
      overrides: [...set, ...testerOverride(tester)],
      split,
      accept,
      output: file === "-" ? undefined : file,
      logger: loggerOf(output),
      hub: downloadNotes(output),
      onProgress: evaluationProgress(output),
      ...hooks,
    }),
  );
  if (distributed.rank() > 0) return;
  const advice = repeatsAdvice(record.summary);
  if (advice !== null) output.note(advice);
  showEvaluation("eval", record, output, json || file === "-");
}
