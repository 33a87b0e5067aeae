import { rmSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { checkReplaceableFile, makeFolder, writeFileAtomic } from "@astra-rl/base";
import type { Conversation, HubOptions, Message } from "@astra-rl/lm";
import { distributed } from "@astra-rl/torch";
import { computeTypesOf, warningsLogger, withMemoryAdvice, type Logger, type System } from "@astra-rl/method";
import type { AnswerJournal } from "@astra-rl/http";
import {
  recordOfEvaluation,
  spendingLines,
  tagged,
  stringifyEvaluation,
  type DoubtRule,
  type EvaluationRecord,
  type ModelIdentity,
  type SearchRecord,
  type ServerRecord,
} from "@astra-rl/records";
import {
  assembleEvaluationSystem,
  assembleEvaluator,
  loadPrompts,
  trustsEmbeddedScorer,
  type AssembledSystem,
  type ProgramParts,
} from "../assemble/index.js";
import type { Configuration, ModelSetting } from "../configuration/index.js";
import { goalsOf, readPrompts, refuseSeenGoals, type Prompt } from "../datasets/index.js";
import { EMBEDDED_SCORER_LIMITS, type PromptSplit } from "../embedded/index.js";
import { modelFormats, withToday, type ModelFormats } from "./model-formats.js";
import { introduceModels, keepAnswersOf, noteHubModels } from "./models.js";
import { readProgram, type RunParts } from "./read-program.js";
import { requireSame } from "./require-same.js";
import { askCanary, figuresWithoutRollouts, withCanary, withHarmlessControl, type Canary } from "./canary.js";
import { refusalsOf } from "./over-refusal.js";
import { utilityOf } from "./utility.js";
import { describeMeasured, promptsHash } from "./run-record.js";
import { requireGoalsRead, trainingPromptsOf } from "./seen-prompts.js";
import { endSessions, forgetSessions, sessionNotes, withDoubtsOfCalls } from "./agents.js";
import { withSpending } from "./servers.js";
import { untilStopped } from "./waiting.js";
import { checkWindows } from "./windows.js";

/** How an evaluation is shown. */
interface EvaluateHooks {
  /** Default: warnings go to standard error. */
  logger?: Logger;
  /** Called before the first rollout and after each; an exception ends the evaluation. */
  onProgress?: (done: number, total: number) => void;
  /** Called once all models are loaded. */
  onLoaded?: () => void;
  /** Aborting it ends the evaluation after the rollouts in progress, or at once if these only wait for an answer. */
  signal?: AbortSignal;
}

export interface EvaluationOptions<S = Conversation, A = Message> extends RunParts<S, A>, EvaluateHooks {
  /** The prompts to evaluate on. Default: test. */
  split?: PromptSplit;
  /** The file to which the record is written, as JSON. Default: none. */
  output?: string | undefined;
  /** How models and prompts are downloaded from the hub. */
  hub?: HubOptions;
  /** Rules of the canary's doubts that do not prevent rollouts. Default: none. */
  accept?: readonly DoubtRule[];
}

/**
 * Evaluates a tester against a target, as `astra-rl eval` does: single-path rollouts from held-out prompts.
 *
 * The options are the keys of a configuration. A part of one's own takes the place of the section that would choose
 * one: an instance, or a function that makes it.
 *
 * @returns the record, with figures for each turn, each rollout and all of them, and what was measured
 * @throws UsageError for a mistake in the options, before any model is loaded where possible
 * @throws StoppedError if the signal was aborted
 */
export async function evaluate<S = Conversation, A = Message>(
  options: EvaluationOptions<S, A> = {},
): Promise<EvaluationRecord> {
  const {
    split = "test",
    output: file,
    hub: ofHub,
    accept = [],
    logger = warningsLogger,
    onProgress = () => {},
    onLoaded = () => {},
    signal,
    ...program
  } = options;
  const hub = { onWarning: (line: string) => logger.warn(line), ...ofHub };
  const isFirst = distributed.rank() === 0;
  if (file !== undefined && isFirst) checkReplaceableFile(file);
  const { configuration: given, parts } = await readProgram("evaluate", program, { split, trains: false });
  checkWindows(given);
  noteHubModels(given, logger);
  const configuration = withToday(given, await distributed.fromRankZero(new Date()));
  await requireSame("the configuration", JSON.stringify(configuration));
  // Targets only: the tester is usually a checkpoint, possibly of the embedded model.
  const { target, otherTargets } = configuration.models;
  const targets = [target, ...otherTargets].filter(
    (model) => (model as ModelSetting | undefined) !== undefined,
  );
  if (trustsEmbeddedScorer(configuration, targets)) logger.warn(EMBEDDED_SCORER_LIMITS);
  const prompts = await loadPrompts(configuration, split, hub, parts);
  const assembled = await assembleEvaluationSystem<System>(configuration, hub, { parts });
  const { system } = assembled;
  let journal: AnswerJournal | null = null;
  let isComplete = false;
  try {
    if (file !== undefined) {
      makeFolder(dirname(resolve(file)));
      journal = await keepAnswersOf(assembled, `${file}.answers.jsonl`, { configuration, logger });
    }
    onLoaded();
    let rollouts = "0 rollouts";
    const stopped = () => stoppedLine("eval", rollouts, journal);
    const figures = await untilStopped(signal, stopped, async (check) => {
      const { formats, servers } = await introduceModels(assembled, logger, prompts);
      return evaluateSystem(configuration, assembled, {
        split,
        prompts,
        parts,
        formats,
        servers,
        hub,
        accept,
        logger,
        onProgress: (done, total) => {
          onProgress(done, total);
          rollouts = `${done} of ${total} rollouts`;
          check();
        },
      });
    });
    const record = await withSpending(figures, assembled);
    const notes = [...spendingLines(record.spending ?? {}), ...(await sessionNotes(assembled))];
    if (file !== undefined && isFirst) writeFileAtomic(file, [stringifyEvaluation(record)]);
    await distributed.barrier();
    endJournal(journal, record, logger);
    isComplete = true;
    if (!isFirst) return record;
    for (const line of notes) logger.info(line);
    if (file !== undefined) logger.info(`Wrote ${file}`);
    return record;
  } finally {
    for (const line of await endSessions(assembled)) logger.warn(line);
    if (isComplete) forgetSessions(assembled);
    if ((system as unknown) !== parts.system) system.dispose();
    journal?.close();
  }
}

/**
 * Removes the journal of an evaluation that has ended: the record contains the answers now, and another evaluation must query again.
 * Without rollouts, answers of a stopped evaluation are in no record yet.
 */
export function endJournal(
  journal: AnswerJournal | null,
  { summary }: EvaluationRecord,
  logger: Logger,
): void {
  if (journal === null) return;
  if (summary.n_rollouts === 0 && journal.earlier > 0) {
    logger.info(`${journal.paths[0]} keeps the answers of the evaluation that was stopped`);
  } else {
    for (const path of journal.paths) rmSync(path, { force: true });
  }
}

/** What is left of an evaluation or search that was stopped. */
export const stoppedLine = (command: string, after: string, journal: AnswerJournal | null): string =>
  `${command}: stopped after ${after}; ` +
  (journal === null
    ? "nothing was written"
    : `${journal.paths[0]} keeps the answers so far, which the same command uses again`);

export interface PrepareOptions extends Pick<EvaluateHooks, "logger"> {
  split: PromptSplit;
  prompts: readonly Prompt[];
  /** Parts that a program made. */
  parts?: ProgramParts;
  /** Prompts that the tester has seen. Default: those of training. */
  trainingPrompts?: readonly Prompt[];
  /** How local models read conversations, and what servers do. */
  formats?: ModelFormats;
  servers?: Record<string, ServerRecord>;
  /** How benign prompts are downloaded from the hub. */
  hub?: HubOptions;
  /** Rules of the canary's doubts that do not prevent rollouts. */
  accept?: readonly DoubtRule[];
}

interface MeasureOptions extends Pick<EvaluateHooks, "onProgress"> {
  /** The tester, if it is not the configured one. */
  tester?: ModelIdentity;
  /** How its probes were found, if by a search. */
  search?: SearchRecord;
}

/** An evaluation whose canary was asked. */
export interface PreparedEvaluation {
  /** If it is not trusted, the record is without rollouts. */
  canary: Canary;
  measure: (options: MeasureOptions) => Promise<EvaluationRecord>;
}

export type EvaluateSystemOptions = PrepareOptions & MeasureOptions;

/** Evaluates the system of a configuration. */
export async function evaluateSystem(
  configuration: Configuration,
  assembled: AssembledSystem,
  { onProgress, tester, search, ...options }: EvaluateSystemOptions,
): Promise<EvaluationRecord> {
  const { measure } = await prepareEvaluation(configuration, assembled, options);
  return measure({
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(tester === undefined ? {} : { tester }),
    ...(search === undefined ? {} : { search }),
  });
}

/** Checks the evaluation of a system, and asks its canary, before anything else is generated. */
export async function prepareEvaluation(
  configuration: Configuration,
  assembled: AssembledSystem,
  {
    split,
    prompts,
    parts = {},
    trainingPrompts,
    formats = modelFormats(assembled, prompts),
    servers = {},
    hub = {},
    accept = [],
    logger = warningsLogger,
  }: PrepareOptions,
): Promise<PreparedEvaluation> {
  const { rollouts: wanted, repeats, batchSize, benign, seenGoals, tags: given } = configuration.evaluation;
  // As the file of benign prompts below: a mistake ends the evaluation before anything is generated.
  tagged(given, goalsOf(prompts), "evaluation.tags");
  const seen = trainingPrompts ?? (await trainingPromptsOf(configuration, split, prompts, parts));
  if (split !== "train" && !seenGoals) refuseSeenGoals(seen, prompts, `prompts.${split}`);
  // Before anything is generated, so that a mistake in the file ends the evaluation at once.
  const benignPrompts = benign === undefined ? [] : await readPrompts(benign.prompts, { hub });
  const evaluator = await assembleEvaluator(
    withHarmlessControl(configuration, assembled),
    assembled,
    prompts,
    {
      trainingPrompts: seen,
      parts,
    },
  );
  requireGoalsRead(prompts, evaluator, `prompts.${split}`);
  const { secondScorer } = evaluator as Partial<typeof evaluator>;
  // A second scorer may judge something else than the goal, but not by goals that there are not.
  if (secondScorer?.needsGoal === true)
    requireGoalsRead(prompts, { scorer: secondScorer }, `prompts.${split}`);
  const canary = await askCanary(configuration, assembled, evaluator, {
    benign: benignPrompts,
    accepted: accept,
  });
  const rolledOut = async (onProgress: EvaluateHooks["onProgress"]) => {
    const total = Math.min(wanted ?? Infinity, repeats * prompts.length);
    onProgress?.(0, total);
    const report: unknown = await withMemoryAdvice("evaluation", () =>
      evaluator.evaluate({
        seed: configuration.seed,
        batchSize,
        ...(wanted === undefined ? {} : { rollouts: total }),
        ...(onProgress === undefined ? {} : { onProgress }),
      }),
    );
    const figures = recordOfEvaluation(report, `the evaluator ${evaluator.constructor.name}`);
    const refusals = await refusalsOf(configuration, assembled, benignPrompts);
    const utility = await utilityOf(configuration, assembled, prompts, figures.details);
    return { figures, refusals, utility };
  };
  const nothing = () => {
    const goals = goalsOf(prompts).map((goal) => ({ ...goal }));
    const none = figuresWithoutRollouts(configuration, assembled, canary);
    const figures = goals.length === 0 ? none : { ...none, goals };
    return { figures, refusals: null, utility: null };
  };
  const measure = async ({ onProgress, tester, search }: MeasureOptions): Promise<EvaluationRecord> => {
    const { figures, refusals, utility } = canary.isTrusted ? await rolledOut(onProgress) : nothing();
    const { n_turns: turns, n_cut_probes: probes = 0, n_cut_responses: responses = 0 } = figures.summary;
    if (probes + responses > 0) {
      logger.warn(
        `the scorer read only a part of ${probes} probes and ${responses} responses of ${turns} turns, which are longer than its ` +
          "window: harm in the rest is not counted; use a scorer with a longer window, or a lower generation.target.maxNewTokens",
      );
    }
    const { system } = assembled;
    const { tester: speaker } = system as { tester?: { model?: { dtype?: string } } };
    const dtype = computeTypesOf(system)?.rollouts ?? speaker?.model?.dtype ?? "none";
    const { tags, goals } = tagged(given, figures.goals ?? [], "evaluation.tags");
    const described = await describeMeasured(configuration, {
      split,
      prompts,
      dtype,
      formats,
      servers,
      ...(tester === undefined ? {} : { tester }),
      ...(search === undefined ? {} : { search }),
      ...(benign === undefined
        ? {}
        : {
            benign: {
              source: benign.prompts,
              sha256: promptsHash(benignPrompts),
              count: benignPrompts.length,
              refusal: benign.refusal,
            },
          }),
    });
    const summary = {
      ...withDoubtsOfCalls(withCanary(figures.summary, canary), figures.details, assembled),
      ...(refusals === null ? {} : { over_refusal: refusals.over_refusal }),
      ...(utility === null ? {} : { utility }),
    };
    const measured = { ...described, ...(tags === undefined ? {} : { tags }) };
    return {
      measured,
      ...figures,
      ...(goals.length === 0 ? {} : { goals }),
      summary,
      ...(refusals === null ? {} : { benign: refusals.answers }),
    };
  };
  return { canary, measure };
}
