import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "@commander-js/extra-typings";
import { distributed } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import {
  configurationSettings,
  parseOverride,
  readConfiguration,
  assembleSystem,
  engineChange,
  loadPrompts,
  recordSession,
  withRecorded,
  withSettled,
  withToday,
  writeResolvedConfiguration,
} from "@astra-rl/assembly";
import {
  downloadNotes,
  readCommandConfiguration,
  setOption,
  stopOnInterrupt,
  introduceModels,
  keepAnswersOf,
  inProcesses,
  processesOption,
  requireSame,
  trainFollowed,
} from "@astra-rl/assembly/command";
import {
  quietOption,
  wholeNumber,
  NoVerdictError,
  createOutput,
  type Output,
  type Streams,
} from "@astra-rl/assembly/program";
import {
  checkpointFormat,
  writeCard,
  gridOption,
  runSweep,
  seedsOption,
  settingsOf,
} from "@astra-rl/contrib/training";
import type { System } from "@astra-rl/method";
import type { AnswerJournal } from "@astra-rl/http";
import {
  ANSWERS,
  checkNewRunFolder,
  checkResumable,
  defaultRunFolder,
  prepareRunFolder,
  takeRunFolder,
  doubtsOfEvaluation,
  doubtsOfFigures,
  doubtsOfTraining,
  parseMetricsLines,
  type Doubt,
  type MetricsRecord,
} from "@astra-rl/records";
import { bestAdvice, foundReport, warningsLine } from "@astra-rl/report";
import "@astra-rl/contrib/kinds";

const declared = () =>
  new Command("train")
    .description(
      "Train the tester; writes metrics, checkpoints and the resolved configuration to a run folder",
    )
    .argument("<config>", "configuration file")
    .option("--run-dir <folder>", "run folder (default: runs/<config>-<time>)")
    .option("--resume", "resume the run in --run-dir", false)
    .addOption(setOption())
    .addOption(seedsOption())
    .addOption(gridOption())
    .option("--jobs <n>", "with --seeds or --grid: number of concurrent runs", wholeNumber(1, 64), 1)
    .option("--json", "print the metrics of each step as a line of JSON on standard output", false)
    .addOption(quietOption())
    .addOption(processesOption());

type TrainOptions = ReturnType<ReturnType<typeof declared>["opts"]>;

/** `astra-rl train CONFIG`: trains the tester and writes a run folder. */
export const trainCommand = (streams: Streams) =>
  declared().action(async (config, { processes = 1, ...options }, command) => {
    const output = createOutput(streams, {
      quiet: options.quiet,
      mayOutlive: "training continues; metrics.jsonl contains every step",
      isRanked: true,
    });
    if (options.runDir === "") throw new UsageError("empty", NO_FOLDER);
    if (options.resume && options.runDir === undefined) {
      throw new UsageError(
        "requires-option",
        "--resume: requires --run-dir, the folder of the run to resume",
      );
    }
    const isSweep = options.seeds !== undefined || (options.grid ?? []).length > 0;
    if (isSweep && (processes > 1 || distributed.launchedOptions() !== null)) {
      throw new UsageError(
        "processes-in-sweep",
        "--seeds and --grid: each run is trained in a separate process; see --jobs",
      );
    }
    if (isSweep) await sweep(config, options, output);
    else await inProcesses(processes, command, output, () => train(config, options, output));
  });

async function sweep(config: string, options: TrainOptions, output: Output): Promise<void> {
  const { runDir, resume, set, seeds, grid = [], jobs, json } = options;
  const given = await readCommandConfiguration(config, { set, trains: true }, output);
  if (json || resume) {
    throw new UsageError(
      "single-run-option",
      `--${json ? "json" : "resume"}: applies to a single run; with --seeds and --grid, run the same command ` +
        `again to resume`,
    );
  }
  const chosen = seeds ?? [given.seed];
  const settings = settingsOf(grid, chosen.length);
  // Errors are reported before any run.
  for (const { texts } of settings) {
    const overrides = [...(set ?? []), ...texts.map(parseOverride)];
    await readConfiguration(config, { overrides, trains: true });
  }
  const interruption = stopOnInterrupt(
    output,
    "Stopping after the steps in progress; press Ctrl-C again to stop immediately.",
    { computes: false },
  );
  const runs = {
    config,
    folder: runDir ?? defaultRunFolder(config),
    seeds: chosen,
    settings,
    set: (set ?? []).map(({ text }) => text),
    jobs,
  };
  try {
    await runSweep(runs, output, interruption.signal);
  } finally {
    interruption.end();
  }
}

async function train(
  config: string,
  { runDir, resume, set, json }: TrainOptions,
  output: Output,
): Promise<void> {
  const given = await readCommandConfiguration(config, { set, trains: true }, output);
  await requireSame("the configuration", JSON.stringify(configurationSettings(given).record));
  const isFirst = distributed.rank() === 0;
  // Rank 0 alone creates and locks the folder, and writes there.
  const folder = await distributed.fromRankZero(runDir ?? defaultRunFolder(config));
  if (!resume && isFirst) checkNewRunFolder(folder);
  let lock = resume && isFirst ? takeRunFolder(folder, { onTakeover: (line) => output.alert(line) }) : null;
  let system: System | null = null;
  let journal: AnswerJournal | null = null;
  let interruption: ReturnType<typeof stopOnInterrupt> | null = null;
  try {
    const wanted = resume ? withRecorded(given, folder) : given;
    if (resume) checkResumable(folder, configurationSettings(wanted));
    const dated = withToday(wanted, await distributed.fromRankZero(new Date()));
    const prompts = await loadPrompts(dated, "train", downloadNotes(output));
    system = await assembleSystem<System>(dated, downloadNotes(output));
    // What an earlier process spent counts from the first call.
    if (resume) journal = await keepAnswersOf(system, join(folder, ANSWERS), output);
    const { formats, servers } = await introduceModels(system, output, prompts);
    const configuration = withSettled(formats.readsDate ? dated : wanted, system);
    interruption = stopOnInterrupt(output);
    const [trained, { orStopped, signal }] = [system, interruption];
    const lastEvaluation = await trainFollowed(
      configuration,
      system,
      output,
      {
        command: "train",
        goOn: `--run-dir ${folder} --resume`,
        runDirectory: folder,
        resume,
        ...(isFirst ? { lock: () => lock! } : {}),
        signal,
        logger: { info: (line) => output.note(line), warn: (line) => output.alert(line) },
        ...(json ? { onStep: (record) => output.json(record) } : {}),
      },
      async (trainer) => {
        if (isFirst) {
          lock ??= prepareRunFolder(folder, () => writeResolvedConfiguration(folder, configuration));
          lock.check();
        }
        // It also contains the files of the other ranks.
        await distributed.barrier();
        journal ??= await keepAnswersOf(trained, join(folder, ANSWERS), output);
        const change = resume ? engineChange(folder) : null;
        if (change !== null) output.alert(change);
        if (isFirst) {
          await recordSession(folder, configuration, { resume, formats: formats.formats, servers });
        }
        await orStopped(trainer.train());
        // A resumed run may have changed options, such as more steps; written only after they were accepted.
        lock?.check();
        if (resume && isFirst) writeResolvedConfiguration(folder, configuration);
        return trainer.lastEvaluation;
      },
    );
    if (lastEvaluation && lastEvaluation.details.length > 0)
      for (const line of foundReport(lastEvaluation)) output.note(line);
    if (!isFirst) return;
    // Hardening trains the target as the tester: it is not a tester, and has no conversations with one.
    const isTarget = isSilent(given.models.target);
    if (!isTarget) writeCard(folder);
    const evaluated = lastEvaluation
      ? doubtsOfFigures(doubtsOfEvaluation(lastEvaluation.summary)).map(inEvaluation)
      : [];
    const metrics = metricsOf(folder);
    // Reasons why the training is inconclusive about the target.
    const doubts = [...doubtsOfTraining(metrics), ...evaluated];
    const tags = ["best", "last"].filter((tag) => existsSync(join(folder, "checkpoints", tag)));
    const checkpoints = tags.map((tag) => join(folder, "checkpoints", tag));
    output.note(`Run folder: ${folder}`);
    output.note(`  ${join(folder, "metrics.jsonl")}: a line for each step`);
    const warnings = warningsLine(metrics);
    if (warnings !== null) output.note(`  ${warnings}`);
    if (checkpoints.length > 0) {
      const format =
        checkpointFormat(checkpoints[0]!) === null
          ? "which only its system can load"
          : "in Hugging Face format";
      output.note(`  ${checkpoints.join(", ")}: the ${isTarget ? "hardened target" : "tester"}, ${format}`);
      const guess = lastEvaluation && tags.length > 1 ? bestAdvice(lastEvaluation.summary) : null;
      if (guess !== null) output.note(`  ${guess}`);
      if (!isTarget)
        output.note(
          `Evaluate it: astra-rl eval ${join(folder, "config.resolved.yaml")} --tester ${checkpoints[0]}`,
        );
    }
    if (doubts.length > 0) throw new NoVerdictError("train", doubts);
  } finally {
    interruption?.end();
    system?.dispose();
    journal?.close();
    lock?.release();
  }
}

/** For an empty name, for example from an unset shell variable. */
const NO_FOLDER = '--run-dir: must name a folder, got ""';

const inEvaluation = (doubt: Doubt): Doubt => ({
  ...doubt,
  reason: `in the last evaluation ${doubt.reason}`,
});

/** The steps of a run; none if a custom trainer writes no metrics.jsonl. */
function metricsOf(folder: string): MetricsRecord[] {
  const file = join(folder, "metrics.jsonl");
  return existsSync(file) ? parseMetricsLines(readFileSync(file, "utf8"), file) : [];
}

/** Whether the target is silent, as in hardening. */
const isSilent = (target: unknown): boolean => (target as { type?: unknown } | undefined)?.type === "silent";
