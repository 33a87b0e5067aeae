import type { Json } from "@astra-rl/base";
import type { RunSettings } from "@astra-rl/records";
import { z } from "zod";
import {
  FREE,
  requireConfiguration,
  TrainingConfiguration,
  trainingOptions,
} from "./training-configuration.js";

const integer = (least: number) => z.int().min(least);

const { trainingSteps, numEpisodesPerExperience, batchSize, learningRate, schedule } = trainingOptions.shape;

/** Replaces the default of an option; `unwrap` alone would lose its description. */
const withDefault = (option: z.ZodDefault<z.ZodNumber>, value: number) =>
  option
    .unwrap()
    .default(value)
    .meta(option.meta() ?? {});

/** Options for training language models, with the defaults of the Python toolbox's `HFASTConfiguration`. */
const hfASTOptions = z.strictObject({
  ...trainingOptions.shape,
  trainingSteps: withDefault(trainingSteps, 1000),
  numEpisodesPerExperience: withDefault(numEpisodesPerExperience, 2),
  batchSize: withDefault(batchSize, 4),
  learningRate: withDefault(learningRate, 1e-5),
  evaluateEvery: integer(0)
    .default(200)
    .meta(FREE)
    .describe("Steps between evaluations on the dev prompts; 0 disables them"),
  evaluationRollouts: integer(1)
    .optional()
    .meta(FREE)
    .describe("Number of dev prompts per evaluation. Default: all"),
  checkpointEvery: z
    .union([z.literal("auto"), integer(0)], { error: 'must be "auto" or a whole number of at least 0' })
    .default("auto")
    .meta(FREE)
    .describe(
      "Steps between checkpoints; a run that is killed recomputes the steps since the last one; 0: only at the " +
        "end. auto: as often as possible within 5 % of the training time",
    ),
  keepCheckpoints: integer(1)
    .default(1)
    .meta(FREE)
    .describe(
      "Number of checkpoints to keep: checkpoints/last and those before it. checkpoints/best is kept in addition",
    ),
  keepGraphs: z.boolean().default(true).meta(FREE).describe("Write every training graph to graphs.jsonl"),
  keepTokens: z
    .boolean()
    .default(false)
    .meta(FREE)
    .describe("Include the token ids that the models read and generated"),
});

const { earlyStopping, stopOn, seed: _, ...others } = hfASTOptions.shape;

/**
 * The `training` section of a configuration: all of `HFASTConfigurationOptions` except the seed. Six defaults are not
 * the toolbox's, with which nothing is learned on models without planted behaviour (docs/decisions/0200): the learning
 * rate depends on the model and decays to 0, and an update has 32 turns from 8 graphs, or 4 of `WIDE_TREES`, instead of 4 from
 * 2, since all but a few percent of the variance of rewards is chance.
 */
export const trainingSection = z.strictObject({
  ...others,
  trainingSteps: withDefault(others.trainingSteps, 300),
  numEpisodesPerExperience: withDefault(others.numEpisodesPerExperience, 8),
  batchSize: withDefault(others.batchSize, 32),
  evaluateEvery: withDefault(others.evaluateEvery, 25),
  learningRate: z
    .union([z.literal("auto"), learningRate.unwrap()], { error: 'must be "auto" or a number above 0' })
    .default("auto")
    .describe(
      "Learning rate, which the schedule scales. auto: 0.012 / the tester's hidden size, ten times that " +
        "for an adapter, 0.4 times that for orpo; at most 0.001",
    ),
  schedule: schedule
    .unwrap()
    .default("linear")
    .describe(
      "Schedule of the learning rate. linear keeps a tester's probes likely and varied at the end; with it, a run that is " +
        "resumed with another number of trainingSteps continues at another rate",
    ),
  earlyStopping,
  stopOn,
});

export type HFASTConfigurationOptions = z.input<typeof hfASTOptions>;

// The constructor assigns all fields: the parsed options.
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging
export interface HFASTConfiguration extends Readonly<z.output<typeof hfASTOptions>> {}

/** Options for training a language model. Defaults: learning rate 1e-5, batch size 4, 1000 steps of 2 episodes. */
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging
export class HFASTConfiguration extends TrainingConfiguration {
  constructor(given: HFASTConfigurationOptions = {}) {
    super(given as never, hfASTOptions);
  }

  /** A configuration unchanged; the options of any other training, completed with the defaults. */
  static of(configuration: TrainingConfiguration): HFASTConfiguration {
    requireConfiguration(configuration);
    if (configuration instanceof HFASTConfiguration) return configuration;
    const names = Object.keys(hfASTOptions.shape);
    const own = Object.entries(configuration).filter(([name]) => names.includes(name));
    return new HFASTConfiguration(Object.fromEntries(own));
  }

  /** The options that a resumed run may not change. */
  get settings(): RunSettings {
    // Without undefined ones, like the saved settings.
    const given = Object.entries(JSON.parse(JSON.stringify(this)) as Record<string, Json>);
    const shape: Readonly<Record<string, z.ZodType>> = hfASTOptions.shape;
    const fixed = given.filter(([name]) => shape[name]?.meta()?.["resume"] !== "free");
    const values = Object.fromEntries(fixed.map(([name, value]) => [`training.${name}`, value]));
    return { values, contents: {} };
  }
}
