import { existsSync } from "node:fs";
import { distributed } from "@astra-rl/torch";
import { UsageError, functionOption, objectOption, parseOptions, type Json } from "@astra-rl/base";
import { z } from "zod";
import type { Conversation, Message } from "@astra-rl/lm";
import { noCheckpoint, RunDirectory, type RunLock, type RunSettings } from "@astra-rl/records";
import type { Algorithm } from "../algorithm/index.js";
import type { Evaluator } from "../evaluation/index.js";
import type { Sampler } from "../sampler/index.js";
import { CheckpointCallback, EvaluationCallback, type EvaluationReport } from "./callbacks/index.js";
import { tokenTeller } from "../system/require-needs.js";
import { HFASTConfiguration } from "./hf-ast-configuration.js";
import { trainingSettings } from "./run-settings.js";
import { requireConfiguration, TrainingConfiguration } from "./training-configuration.js";
import { Trainer } from "./trainer.js";
import { TRAINER_ADVICE, trainerOptions, type TrainerOptions } from "./trainer-options.js";

const DEFAULT_RUN_DIRECTORY = "run";

const hfASTTrainerOptions = z.strictObject({
  ...trainerOptions.shape,
  /** Evaluates the tester on the dev prompts. Without it there are no evaluations and no `checkpoints/best`. */
  evaluator: objectOption<Evaluator<never, never, EvaluationReport>>(
    "must be an Evaluator (an object with the method evaluate)",
    "evaluate",
  ).optional(),
  /** Folder for metrics.jsonl and checkpoints. null: nothing is saved, with a warning. */
  runDirectory: z.string().min(1).nullable().default(DEFAULT_RUN_DIRECTORY),
  /** Resume from `checkpoints/last` of the run directory. */
  resume: z.boolean().default(false),
  /** Returns the run directory's lock if the caller already holds it. Default: `train` acquires it. */
  lock: functionOption<() => RunLock>().optional(),
  /** Settings that must not change when a run is resumed. Default: the training configuration. */
  settings: objectOption<RunSettings>(
    "must be settings of a run (record, and the method changes)",
    "changes",
  ).optional(),
});

export type HFASTTrainerOptions<S = Conversation, A = Message> = TrainerOptions<S, A> &
  Omit<z.input<typeof hfASTTrainerOptions>, keyof TrainerOptions | "evaluator"> & {
    evaluator?: Evaluator<S, A, EvaluationReport> | undefined;
  };

/** Hints for option names of the Python toolbox. */
const ADVICE = {
  ...TRAINER_ADVICE,
  devPrompts: "give evaluator: new ASTEvaluator(sampler, prompts)",
  evalEvery: "set it in new HFASTConfiguration({ evaluateEvery })",
  evaluateEvery: "set it in new HFASTConfiguration({ evaluateEvery })",
  ckptDir: "give runDirectory (default: run)",
};

/**
 * A trainer that evaluates on dev prompts, saves the best and the last tester, writes metrics, and resumes exactly.
 *
 * After the updates of each step it evaluates if due, and writes `checkpoints/best` if the mean of the sampler's
 * `finalReward` is the highest so far. Then it appends the step to graphs.jsonl, evaluations.jsonl and metrics.jsonl,
 * and writes `checkpoints/last`, with everything needed to resume, if due. `last` is always complete, even if the
 * process is killed. A resumed run truncates the three files to the lengths in the checkpoint and recomputes the rest
 * with the same result: every random draw is a function of the seed and of counters.
 *
 * A full or read-only disk ends training with an error; data already written stays intact.
 */
export class HFASTTrainer<S = Conversation, A = Message, Step = unknown, Batch = unknown> extends Trainer<
  S,
  A,
  Step,
  Batch
> {
  declare readonly configuration: HFASTConfiguration;
  readonly runDirectory: RunDirectory | null;
  readonly #options: HFASTTrainerOptions<S, A>;
  readonly #settings: RunSettings;
  readonly #evaluation: EvaluationCallback<S, A> | null = null;
  readonly #checkpoints: CheckpointCallback<S, A> | null = null;

  constructor(
    given: TrainingConfiguration,
    sampler: Sampler<S, A>,
    algorithm: Algorithm<S, A, Step, Batch>,
    options: HFASTTrainerOptions<S, A> = {},
  ) {
    requireConfiguration(given, TrainingConfiguration);
    const configuration = HFASTConfiguration.of(given);
    const parsed = parseOptions("training", hfASTTrainerOptions, options, ADVICE) as HFASTTrainerOptions<
      S,
      A
    >;
    const { evaluator, runDirectory = null, resume, lock: _, settings, ...others } = parsed;
    super(configuration, sampler, algorithm, others);
    const tokens = configuration.keepTokens ? tokenTeller<S, A>(sampler.system) : null;
    this.#options = parsed;
    this.#settings = settings ?? trainingSettings(configuration);
    this.runDirectory = runDirectory === null ? null : new RunDirectory(runDirectory);
    if (resume && this.runDirectory === null) {
      throw new UsageError("requires-option", "training: resume requires the run directory of the run");
    }
    const metric = configuration.earlyStopping?.metric;
    if (metric?.startsWith("evaluation/") && (evaluator === undefined || configuration.evaluateEvery === 0)) {
      throw new UsageError(
        "metric-not-measured",
        `training: earlyStopping.metric ${metric} is measured by evaluations, which are disabled; set ` +
          `evaluateEvery, or ` +
          "choose a metric of training steps",
      );
    }
    if (evaluator !== undefined) {
      this.#evaluation = new EvaluationCallback(evaluator, configuration, (evaluation) =>
        this.#checkpoints?.addEvaluation(evaluation),
      );
      this.callbacks.add(this.#evaluation);
    }
    if (this.runDirectory !== null) {
      const trainer = this as unknown as Trainer<S, A>;
      this.#checkpoints = new CheckpointCallback(
        trainer,
        configuration,
        this.runDirectory,
        this.#settings,
        tokens,
      );
      // Added last, so that checkpoints contain the other callbacks' state after this step.
      this.callbacks.add(this.#checkpoints);
    }
  }

  /** Highest mean `finalReward` on the dev prompts so far; null before the first evaluation. */
  get bestScore(): number | null {
    return this.#evaluation?.bestScore ?? null;
  }

  /** This process's last evaluation on the dev prompts; null before the first. */
  get lastEvaluation(): Required<EvaluationReport> | null {
    return this.#evaluation?.last ?? null;
  }

  protected override get loggedRun(): { folder: string | null; configuration: Json } {
    const { configuration } = this.#settings.record;
    return {
      folder: this.runDirectory?.path ?? null,
      configuration: (configuration as Json | undefined) ?? super.loggedRun.configuration,
    };
  }

  override async train(): Promise<void> {
    const directory = this.runDirectory;
    const { resume = false, lock } = this.#options;
    const writes = distributed.rank() === 0;
    if (writes) this.#warnOfLoss();
    if (writes && directory !== null) {
      if (resume && !existsSync(directory.path))
        throw new UsageError("no-checkpoint", noCheckpoint(directory.path));
      directory.open({ resume, lock: lock?.(), onTakeover: (line) => this.logger.warn(line) });
    }
    try {
      if (directory !== null) {
        // Now the other ranks may read the folder.
        await distributed.barrier();
        if (resume) await this.#resume(directory);
      }
      await super.train();
    } finally {
      if (writes) directory?.close();
    }
  }

  /** Warns about what training will not save. */
  #warnOfLoss(): void {
    const { constructor, storesTester } = this.system;
    if (this.runDirectory === null) {
      this.logger.warn(
        "training: nothing is saved, neither metrics nor the tester, since runDirectory is null; name a folder, or save the " +
          "tester with system.saveTester(folder)",
      );
    } else if (!storesTester) {
      this.logger.warn(
        `training: checkpoints contain only the parameters() of ${constructor.name}, which other tools cannot ` +
          `load; to ` +
          "change that, implement its methods saveTester and restoreTester",
      );
    }
  }

  async #resume(directory: RunDirectory): Promise<void> {
    // Do not start over in a folder that may hold days of metrics.
    if (!directory.hasCheckpoint("last")) throw new UsageError("no-checkpoint", noCheckpoint(directory.path));
    await this.#checkpoints!.restore();
    const steps = await distributed.allGatherObject(this.step);
    const other = steps.findIndex((step) => step !== steps[0]);
    if (other >= 0) {
      throw new UsageError(
        "ranks-disagree",
        `${directory.path}: rank ${other} has a checkpoint of step ${steps[other]}, but rank 0 has one of ` +
          `step ${steps[0]}; the run ` +
          "folder must be on a file system that all machines share",
      );
    }
    this.logger.info(`${directory.path}: resuming after step ${this.step}`);
  }
}
