import { z } from "zod";
import { parseOptions } from "../options/index.js";
import {
  FREE,
  TrainingConfiguration,
  trainingOptions,
  type TrainingConfigurationOptions,
} from "./training-configuration.js";

export interface HFASTConfigurationOptions extends TrainingConfigurationOptions {
  /** Training steps between two evaluations on the dev prompts; 0: none. @default 200 */
  evaluateEvery?: number;
  /** Dev prompts of one evaluation. Default: all. */
  evaluationRollouts?: number;
  /**
   * Training steps between two checkpoints; 0: only at the end. A run that is killed computes the steps since its last
   * checkpoint again, with the same result. "auto": as often as takes at most a twentieth of the time, so that small
   * models are saved at every step and large ones every so many minutes. @default "auto"
   */
  checkpointEvery?: number | "auto";
  /** Checkpoints to go on from that are kept: `last` and those before it; at least 1. @default 1 */
  keepCheckpoints?: number;
  /** Write every training graph to graphs.jsonl. @default true */
  keepGraphs?: boolean;
  /** With the token ids that the models read and said, for systems that tell them. @default false */
  keepTokens?: boolean;
}

const whole = (least: number) => z.int().min(least);

const { trainingSteps, numEpisodesPerExperience, batchSize, learningRate } = trainingOptions.shape;

/** An option with another default; `unwrap` alone would leave its description behind. */
const withDefault = (option: z.ZodDefault<z.ZodNumber>, value: number) =>
  option
    .unwrap()
    .default(value)
    .meta(option.meta() ?? {});

/** The options of a training of language models, with the Python toolbox's defaults for these. */
const hfASTOptions = z.strictObject({
  ...trainingOptions.shape,
  trainingSteps: withDefault(trainingSteps, 1000),
  numEpisodesPerExperience: withDefault(numEpisodesPerExperience, 2),
  batchSize: withDefault(batchSize, 4),
  learningRate: withDefault(learningRate, 1e-5),
  evaluateEvery: whole(0)
    .default(200)
    .meta(FREE)
    .describe("Steps between evaluations on the dev prompts; 0 = none"),
  evaluationRollouts: whole(1).optional().meta(FREE).describe("Dev prompts of one evaluation. Default: all"),
  checkpointEvery: z
    .union([z.literal("auto"), whole(0)], { error: 'must be "auto" or a whole number of at least 0' })
    .default("auto")
    .meta(FREE)
    .describe(
      "Steps between checkpoints: so much is computed again when the run is killed; 0 = only at the end. auto: as " +
        "often as takes at most a twentieth of the time",
    ),
  keepCheckpoints: whole(1)
    .default(1)
    .meta(FREE)
    .describe(
      "How many checkpoints to keep: checkpoints/last and those before it. checkpoints/best comes on top",
    ),
  keepGraphs: z.boolean().default(true).meta(FREE).describe("Write every training graph to graphs.jsonl"),
  keepTokens: z
    .boolean()
    .default(false)
    .meta(FREE)
    .describe("With the token ids that the models read and said"),
});

const { earlyStopping, seed: _, ...others } = hfASTOptions.shape;

/** The `training` section of a configuration: everything of `HFASTConfigurationOptions` but the seed. */
export const trainingSection = z.strictObject({
  ...others,
  tensorboard: z
    .boolean()
    .default(false)
    .meta(FREE)
    .describe("Write the curves to tensorboard/ in the run folder; short for logging: [{type: tensorboard}]"),
  earlyStopping,
});

/** Training of a language model, with the Python toolbox's defaults: learning rate 1e-5, batch 4, 1000 steps of 2 episodes. */
export class HFASTConfiguration extends TrainingConfiguration {
  readonly evaluateEvery: number;
  readonly evaluationRollouts: number | undefined;
  readonly checkpointEvery: number | "auto";
  readonly keepCheckpoints: number;
  readonly keepGraphs: boolean;
  readonly keepTokens: boolean;

  constructor(given: HFASTConfigurationOptions = {}) {
    const {
      evaluateEvery,
      evaluationRollouts,
      checkpointEvery,
      keepCheckpoints,
      keepGraphs,
      keepTokens,
      ...training
    } = parseOptions("training", hfASTOptions, given);
    super(training as TrainingConfigurationOptions);
    this.evaluateEvery = evaluateEvery;
    this.evaluationRollouts = evaluationRollouts;
    this.checkpointEvery = checkpointEvery;
    this.keepCheckpoints = keepCheckpoints;
    this.keepGraphs = keepGraphs;
    this.keepTokens = keepTokens;
  }
}
