import { join } from "node:path";
import { Command } from "@commander-js/extra-typings";
import { distributed } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { parseOverride, readConfiguration, train, type TrainingRun } from "@astra-rl/assembly";
import {
  readCommandConfiguration,
  setOption,
  stopOnInterrupt,
  inProcesses,
  processesOption,
  trainFollowed,
  trainsTarget,
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
import { defaultRunFolder, type MetricsRecord } from "@astra-rl/records";
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
    else await inProcesses(processes, command, output, () => trainFrom(config, options, output));
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

async function trainFrom(
  config: string,
  { runDir, resume, set, json }: TrainOptions,
  output: Output,
): Promise<void> {
  const controller = new AbortController();
  let interruption = null as ReturnType<typeof stopOnInterrupt> | null;
  try {
    const run = await trainFollowed(
      output,
      {
        command: "train",
        resumption: (folder) => `--run-dir ${folder} --resume`,
        ...(json ? { onStep: (record: MetricsRecord) => output.json(record) } : {}),
      },
      ({ onLoaded, ...following }) =>
        train({
          configuration: config,
          overrides: set,
          runDirectory: runDir,
          resume,
          ...following,
          signal: controller.signal,
          onLoaded: (loaded) => {
            interruption = stopOnInterrupt(output, undefined, { controller });
            onLoaded(loaded);
          },
        }),
    );
    showRun(run, output);
    if (run.doubts.length > 0) throw new NoVerdictError("train", run.doubts);
  } finally {
    interruption?.end();
  }
}

/** What was trained, and what to do next. */
function showRun(
  { folder, configuration, checkpoints, lastEvaluation, metrics }: TrainingRun,
  output: Output,
): void {
  // Hardening trains the target as the tester: it is not a tester, and has no conversations with one.
  const isTarget = trainsTarget(configuration);
  if (!isTarget && lastEvaluation !== null && lastEvaluation.details.length > 0)
    for (const line of foundReport(lastEvaluation)) output.note(line);
  if (distributed.rank() > 0) return;
  if (!isTarget) writeCard(folder);
  output.note(`Run folder: ${folder}`);
  output.note(`  ${join(folder, "metrics.jsonl")}: a line for each step`);
  const warnings = warningsLine(metrics);
  if (warnings !== null) output.note(`  ${warnings}`);
  const saved = [checkpoints.best, checkpoints.last].filter((path) => path !== undefined);
  if (saved.length === 0) return;
  const format =
    checkpointFormat(saved[0]!) === null ? "which only its system can load" : "in Hugging Face format";
  output.note(`  ${saved.join(", ")}: the ${isTarget ? "hardened target" : "tester"}, ${format}`);
  const guess =
    !isTarget && lastEvaluation !== null && saved.length > 1 ? bestAdvice(lastEvaluation.summary) : null;
  if (guess !== null) output.note(`  ${guess}`);
  if (!isTarget)
    output.note(`Evaluate it: astra-rl eval ${join(folder, "config.resolved.yaml")} --tester ${saved[0]}`);
}

/** For an empty name, for example from an unset shell variable. */
const NO_FOLDER = '--run-dir: must name a folder, got ""';
