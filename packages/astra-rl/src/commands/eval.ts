import { rmSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Command, Option } from "@commander-js/extra-typings";
import { checkReplaceableFile, makeFolder } from "@astra-rl/base";
import { distributed } from "@astra-rl/torch";
import {
  assembleEvaluationSystem,
  loadPrompts,
  spendingNotesOfRanks,
  trustsEmbeddedScorer,
  withToday,
  PROMPT_SPLITS,
  EMBEDDED_SCORER_LIMITS,
} from "@astra-rl/assembly";
import {
  evaluate,
  showEvaluation,
  introduceModels,
  keepAnswersOf,
  downloadNotes,
  readCommandConfiguration,
  setOption,
  testerOption,
  inProcesses,
  processesOption,
  requireSame,
} from "@astra-rl/assembly/command";
import {
  writeResult,
  quietOption,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import type { System } from "@astra-rl/method";
import type { AnswerJournal } from "@astra-rl/http";
import { stringifyEvaluation } from "@astra-rl/records";
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
  { split, output: file, json, ...given }: EvalOptions,
  output: Output,
): Promise<void> {
  const isFirst = distributed.rank() === 0;
  const toFile = file !== undefined && file !== "-";
  if (toFile && isFirst) checkReplaceableFile(file);
  const configuration = withToday(
    await readCommandConfiguration(config, given, output),
    await distributed.fromRankZero(new Date()),
  );
  await requireSame("the configuration", JSON.stringify(configuration));
  // Targets only: the tester is usually a checkpoint, possibly of the embedded model.
  const { target, otherTargets } = configuration.models;
  const targets = [target, ...otherTargets].filter(
    (model) => (model as typeof model | undefined) !== undefined,
  );
  if (trustsEmbeddedScorer(configuration, targets)) output.alert(EMBEDDED_SCORER_LIMITS);
  const prompts = await loadPrompts(configuration, split, downloadNotes(output));
  const system = await assembleEvaluationSystem<System>(configuration, downloadNotes(output));
  let journal: AnswerJournal | null = null;
  try {
    if (toFile) {
      makeFolder(dirname(resolve(file)));
      journal = await keepAnswersOf(system, `${file}.answers.jsonl`, output);
    }
    const { formats, servers } = await introduceModels(system, output, prompts);
    const record = await evaluate(configuration, system, output, { split, prompts, formats, servers });
    const spending = await spendingNotesOfRanks(system);
    if (!isFirst) return;
    if (toFile) writeResult(file, stringifyEvaluation(record));
    // The record contains them now; another evaluation must query again.
    for (const path of journal?.paths ?? []) rmSync(path, { force: true });
    for (const line of spending) output.note(line);
    if (toFile) output.note(`Wrote ${file}`);
    const advice = repeatsAdvice(record.summary);
    if (advice !== null) output.note(advice);
    showEvaluation("eval", record, output, json || file === "-");
  } finally {
    system.dispose();
    journal?.close();
  }
}
