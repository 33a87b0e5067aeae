import { describeValue, UsageError, parseOptions } from "@astra-rl/base";
import { optimizerNames, scheduleNames } from "@astra-rl/torch";
import { z } from "zod";
import { earlyStoppingOptions } from "./callbacks/early-stopping.js";
import { WARNING_RULES } from "./watch/index.js";

const integer = (least: number) => z.int().min(least);
const share = z.number().min(0).lt(1);

/** Marks options that a resumed run may change: its length and its output, not what a step computes. */
export const FREE = { resume: "free" };

/** Options of every training, with the defaults of the Python toolbox's `TrainingConfiguration`. */
export const trainingOptions = z.strictObject({
  trainingSteps: integer(0)
    .default(1024)
    .meta(FREE)
    .describe("Steps; each collects one experience and updates from it"),
  numEpisodesPerExperience: integer(1).default(8).describe("Graphs grown for each step"),
  batchSize: integer(1).default(16).describe("Steps (pairs) in one forward and backward pass"),
  gradientAccumulationSteps: integer(1)
    .default(1)
    .describe("Batches whose gradients are summed into one optimizer step, exact as if they were one batch"),
  optimizer: z.enum(optimizerNames).default("adamw").describe("How gradients change the weights"),
  shardOptimizer: z
    .boolean()
    .default(false)
    .meta(FREE)
    .describe(
      "Among several processes: each keeps its part of the optimizer's state, which saves memory and costs a broadcast of the weights in each update",
    ),
  learningRate: z.number().positive().default(3e-3).describe("Before the schedule scales it"),
  betas: z
    .tuple([share, share])
    .readonly()
    .optional()
    .describe("Decay rates of the two moments of Adam and AdamW"),
  weightDecay: z.number().min(0).optional().describe("Default: the optimizer's own"),
  schedule: z.enum(scheduleNames).default("constant").describe("Of the learning rate"),
  warmupSteps: integer(0).default(0).describe("Steps in which the learning rate grows from 0"),
  clipGradNorm: z
    .number()
    .min(0)
    .default(10)
    .describe("Largest joint norm of all gradients; 0 = no clipping"),
  nonFinite: z
    .strictObject({
      stopAfter: integer(1)
        .default(5)
        .meta(FREE)
        .describe("Number of such updates in a row that ends training with an error"),
    })
    .prefault({})
    .describe("Updates whose loss or gradient is not finite: they are skipped, with a warning, and counted"),
  earlyStopping: earlyStoppingOptions
    .optional()
    .meta(FREE)
    .describe("Ends training when a metric has not improved for a while. Default: train to the last step"),
  stopOn: z
    .array(z.enum(WARNING_RULES))
    .readonly()
    .default([])
    .meta(FREE)
    .describe(
      "Warnings with which training ends after the step, with a checkpoint, by their rules (docs/metrics.md). Default: none",
    ),
  seed: integer(0).default(0).describe("Everything random in the run follows from it"),
});

export type TrainingConfigurationOptions = z.input<typeof trainingOptions>;

// The constructor assigns all fields: the parsed options.
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging
export interface TrainingConfiguration extends Readonly<z.output<typeof trainingOptions>> {}

/**
 * Training options, validated on construction and read-only. Names are the Python toolbox's, camelCased and
 * unabbreviated.
 */
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging, typescript/no-extraneous-class
export class TrainingConfiguration {
  /** @throws UsageError that names the option, its rule and the value given */
  constructor(given: TrainingConfigurationOptions = {}, schema: z.ZodObject = trainingOptions) {
    Object.assign(this, parseOptions("training", schema, given));
    const { betas, optimizer } = this;
    if (betas !== undefined && optimizer !== "adam" && optimizer !== "adamw") {
      throw new UsageError(`training: betas belong to adam and adamw, not to ${optimizer}; leave them out`);
    }
  }
}

/** @throws UsageError for anything else, such as a plain options object */
export function requireConfiguration(
  configuration: unknown,
  Class: new (options: never) => TrainingConfiguration,
): void {
  if (configuration instanceof Class) return;
  const article = /^(HF|[AEIOU])/u.test(Class.name) ? "an" : "a";
  throw new UsageError(
    `training: the configuration must be ${article} ${Class.name}, got ${describeValue(configuration)}; write ` +
      `new ${Class.name}({ … })`,
  );
}
