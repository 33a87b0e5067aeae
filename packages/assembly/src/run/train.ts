import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Json } from "@astra-rl/base";
import { distributed } from "@astra-rl/torch";
import type { Conversation, HubOptions, Message } from "@astra-rl/lm";
import {
  warningsLogger,
  type EvaluationReport,
  type Logger,
  type System,
  type TrainerOptions,
} from "@astra-rl/method";
import type { AnswerJournal } from "@astra-rl/http";
import {
  ANSWERS,
  checkNewRunFolder,
  defaultRunFolder,
  doubtsOfEvaluation,
  doubtsOfFigures,
  doubtsOfTraining,
  parseMetricsLines,
  prepareRunFolder,
  readResumableState,
  takeRunFolder,
  type Doubt,
  type MetricsRecord,
  type RunLock,
  type ServerRecord,
} from "@astra-rl/records";
import {
  assembleSystem,
  assembleTrainer,
  loadPrompts,
  namesOf,
  type AssembledSystem,
  type AssembledTrainer,
  type ProgramParts,
} from "../assemble/index.js";
import type { Configuration } from "../configuration/index.js";
import { withToday, type ModelFormats } from "./model-formats.js";
import { introduceModels, keepAnswersOf, noteHubModels } from "./models.js";
import { readProgram, type RunParts } from "./read-program.js";
import { requireSame } from "./require-same.js";
import { withRecorded, withSettled, writeResolvedConfiguration } from "./resolved-configuration.js";
import { configurationSettings } from "./run-identity.js";
import { engineChange, recordSession, recordStop } from "./run-record.js";
import { refuseTestedGoals, requireGoalsRead } from "./seen-prompts.js";
import { endSessions, sessionNotes } from "./agents.js";
import { spendingNotesOfRanks } from "./servers.js";
import { StoppedWaitingError, unlessIdle } from "./waiting.js";
import { checkWindows } from "./windows.js";

/** How a run is shown and stopped. */
export interface TrainHooks<S = Conversation, A = Message> extends Pick<
  TrainerOptions<S, A>,
  "callbacks" | "onProgress"
> {
  /** Aborting it ends training after the current step, or at once if that only waits for an answer. */
  signal?: AbortSignal;
  /** Default: warnings go to standard error. */
  logger?: Logger;
  /** How models and prompts are downloaded from the hub. */
  hub?: HubOptions;
  /** What started the process, for run.json. Default: the process's arguments. */
  command?: readonly string[];
}

export interface TrainOptions<S = Conversation, A = Message> extends RunParts<S, A>, TrainHooks<S, A> {
  /** The run folder. Default: runs/<configuration>-<time>. */
  runDirectory?: string | undefined;
  /** Resume the run in the run folder, from its last checkpoint. */
  resume?: boolean;
  /** Called once all models are loaded, before the first step. */
  onLoaded?: (run: LoadedRun<S, A> & { folder: string }) => void;
}

/** What a run trains, once all models are loaded. */
export interface LoadedRun<S = Conversation, A = Message> extends Pick<AssembledSystem, "evaluators"> {
  configuration: Configuration;
  system: System<S, A>;
}

/** What a call of `train` did. With several processes, only rank 0 knows `metrics`, `checkpoints` and `doubts`. */
export interface TrainingRun {
  folder: string;
  /** With all defaults filled in, as in config.resolved.yaml. */
  configuration: Configuration;
  /** The last step, of `steps`. */
  step: number;
  steps: number;
  /** Whether the signal ended it before the last step. */
  isStopped: boolean;
  /** Why a callback or a rule of `training` ended it early; null if none did. */
  stopReason: string | null;
  /** Those of all steps, including those before a resume. */
  metrics: MetricsRecord[];
  /** The last evaluation on the dev prompts of this process; null without one. */
  lastEvaluation: Required<EvaluationReport> | null;
  /** The folders of saved testers. */
  checkpoints: { best?: string; last?: string };
  /** Reasons why the run is inconclusive about the target; empty if there are none. */
  doubts: Doubt[];
}

/**
 * Trains a tester, as `astra-rl train` does: writes a run folder with metrics, graphs, evaluations, checkpoints and
 * config.resolved.yaml, and resumes one exactly.
 *
 * The options are the keys of a configuration. A part of one's own takes the place of the section that would choose
 * one: an instance, or a function that makes it.
 *
 * @throws UsageError for a mistake in the options, before any model is loaded where possible
 * @throws StoppedWaitingError if the signal was aborted while the run only waited for an answer
 */
export async function train<S = Conversation, A = Message>(
  options: TrainOptions<S, A> = {},
): Promise<TrainingRun> {
  const { runDirectory, resume = false, onLoaded, ...others } = options;
  const { callbacks, onProgress, signal, logger = warningsLogger, hub: ofHub, command, ...program } = others;
  const hub = { onWarning: (line: string) => logger.warn(line), ...ofHub };
  const { configuration: given, parts } = await readProgram("train", program, {
    split: "train",
    trains: true,
  });
  checkWindows(given);
  noteHubModels(given, logger);
  const settings = (configuration: Configuration) => configurationSettings(configuration, namesOf(parts));
  await requireSame("the configuration", JSON.stringify(settings(given)));
  const isFirst = distributed.rank() === 0;
  // Rank 0 alone creates and locks the folder, and writes there.
  const folder = await distributed.fromRankZero(
    runDirectory ?? defaultRunFolder(program.configuration ?? "train"),
  );
  if (!resume && isFirst) checkNewRunFolder(folder);
  let lock = resume && isFirst ? takeRunFolder(folder, { onTakeover: (line) => logger.warn(line) }) : null;
  let assembled: AssembledSystem | null = null;
  let journal: AnswerJournal | null = null;
  try {
    const wanted = resume ? withRecorded(given, folder) : given;
    if (resume) readResumableState(folder, settings(wanted));
    const dated = withToday(wanted, await distributed.fromRankZero(new Date()));
    const prompts = await loadPrompts(dated, "train", hub, parts);
    await refuseTestedGoals(dated, prompts, parts);
    assembled = await assembleSystem<System>(dated, hub, parts);
    requireGoalsRead(prompts, assembled.system as object, "prompts.train");
    // What an earlier process spent counts from the first call.
    const kept = { configuration: dated, logger };
    if (resume) journal = await keepAnswersOf(assembled, join(folder, ANSWERS), kept);
    const { formats, servers } = await introduceModels(assembled, logger, prompts);
    const configuration = withSettled(formats.readsDate ? dated : wanted, assembled.system);
    onLoaded?.({ ...(assembled as AssembledSystem<System<S, A> & System>), configuration, folder });
    return await trainSystem(configuration, assembled, {
      folder,
      resume,
      parts,
      formats,
      servers,
      hub,
      logger,
      ...({ callbacks, onProgress, signal, command } as TrainHooks),
      lock: () =>
        (lock ??= prepareRunFolder(folder, () => writeResolvedConfiguration(folder, configuration))),
      onLocked: async (trained) => {
        journal ??= await keepAnswersOf(trained, join(folder, ANSWERS), kept);
      },
    });
  } finally {
    if (assembled !== null) for (const line of await endSessions(assembled)) logger.warn(line);
    if (assembled?.system !== parts.system) assembled?.system.dispose();
    journal?.close();
    lock?.release();
  }
}

/** What `trainSystem` needs to know besides a configuration and its system. */
export interface TrainSystemOptions extends TrainHooks {
  folder: string;
  resume?: boolean;
  /** Parts that a program made. */
  parts?: ProgramParts;
  /** How local models read conversations, and what servers do. */
  formats: ModelFormats;
  servers?: Record<string, ServerRecord>;
  /** The lock of the folder, which it creates if necessary; the caller releases it. Called by rank 0. */
  lock: () => RunLock;
  /** Called by all ranks once the folder is locked. */
  onLocked?: (assembled: AssembledSystem) => Promise<void>;
  logger: Logger;
}

/** Trains the system of a configuration in a run folder. */
export async function trainSystem(
  configuration: Configuration,
  assembled: AssembledSystem,
  options: TrainSystemOptions,
): Promise<TrainingRun> {
  const { folder, resume = false, parts = {}, lock, onLocked, logger } = options;
  const { hub = {}, signal, callbacks = [], onProgress } = options;
  const isFirst = distributed.rank() === 0;
  const steps = configuration.training.trainingSteps;
  const trainer = await assembleTrainer(
    configuration,
    assembled,
    {
      settings: configurationSettings(configuration, namesOf(parts)),
      loggedConfiguration: JSON.parse(JSON.stringify(configuration)) as Json,
      runDirectory: folder,
      resume,
      callbacks,
      logger,
      ...(isFirst ? { lock } : {}),
      ...(signal === undefined ? {} : { signal }),
      ...(onProgress === undefined ? {} : { onProgress }),
    },
    hub,
    parts,
  );
  let lastEvaluation: TrainingRun["lastEvaluation"];
  try {
    if (isFirst) lock().check();
    // It also contains the files of the other ranks.
    await distributed.barrier();
    await onLocked?.(assembled);
    await trainIn(configuration, trainer, options);
    // It may be that of a custom trainer, which need not evaluate.
    lastEvaluation = trainer.lastEvaluation ?? null;
  } finally {
    trainer.dispose();
  }
  const { step, stopReason = null } = trainer;
  for (const line of [...(await spendingNotesOfRanks(assembled)), ...(await sessionNotes(assembled))])
    logger.info(line);
  const isAborted = (await distributed.allGatherObject(signal?.aborted === true)).includes(true);
  const metrics = isFirst ? metricsOf(folder) : [];
  return {
    folder,
    configuration,
    step,
    steps,
    isStopped: isAborted && step < steps,
    stopReason,
    metrics,
    lastEvaluation,
    checkpoints: Object.fromEntries(
      (isFirst ? (["best", "last"] as const) : [])
        .map((tag) => [tag, join(folder, "checkpoints", tag)] as const)
        .filter(([, path]) => existsSync(path)),
    ),
    doubts: isFirst ? doubtsOf(metrics, lastEvaluation) : [],
  };
}

/** Trains, and records the process and what it accepted. */
async function trainIn(
  configuration: Configuration,
  trainer: AssembledTrainer,
  { folder, resume = false, lock, logger, signal, formats, servers, command }: TrainSystemOptions,
): Promise<void> {
  const isFirst = distributed.rank() === 0;
  const steps = configuration.training.trainingSteps;
  const change = resume ? engineChange(folder) : null;
  if (change !== null) logger.warn(change);
  if (isFirst) {
    await recordSession(folder, configuration, {
      resume,
      formats: formats.formats,
      ...(servers === undefined ? {} : { servers }),
      ...(command === undefined ? {} : { command }),
    });
  }
  const training = trainer.train();
  await (signal === undefined
    ? training
    : unlessIdle(training, signal, () => new StoppedWaitingError(folder, trainer.step, steps)));
  if (!isFirst) return;
  // A resumed run may have changed options, such as more steps; written only after they were accepted.
  lock().check();
  if (resume) writeResolvedConfiguration(folder, configuration);
  const { step, stopReason: reason = null } = trainer;
  if (reason !== null && step < steps) recordStop(folder, { step, reason });
}

/** The steps of a run; none if a custom trainer writes no metrics.jsonl. */
function metricsOf(folder: string): MetricsRecord[] {
  const file = join(folder, "metrics.jsonl");
  return existsSync(file) ? parseMetricsLines(readFileSync(file, "utf8"), file) : [];
}

function doubtsOf(metrics: readonly MetricsRecord[], evaluation: TrainingRun["lastEvaluation"]): Doubt[] {
  const evaluated = evaluation === null ? [] : doubtsOfFigures(doubtsOfEvaluation(evaluation.summary));
  return [
    ...doubtsOfTraining(metrics),
    ...evaluated.map((doubt) => ({ ...doubt, reason: `in the last evaluation ${doubt.reason}` })),
  ];
}
