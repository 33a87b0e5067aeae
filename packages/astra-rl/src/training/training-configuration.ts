import {
  describeValue,
  optimizerNames,
  scheduleNames,
  UsageError,
  type OptimizerName,
  type ScheduleName,
} from "@astra-rl/torch";
import { z } from "zod";
import { parseOptions } from "../options/index.js";
import { earlyStoppingOptions, type EarlyStoppingOptions } from "./early-stopping.js";

export interface TrainingConfigurationOptions {
  /** Step size of the optimizer before the schedule scales it. @default 3e-3 */
  learningRate?: number;
  /** Items (for DPO: pairs) in one forward and backward pass. @default 16 */
  batchSize?: number;
  /** @default "adamw" */
  optimizer?: OptimizerName;
  /** Batches whose gradients are summed into one optimizer step, exact as if they were one batch. @default 1 */
  gradientAccumulationSteps?: number;
  /**
   * Let a group of batches that is not full at the end of an experience wait for the next one, instead of updating with
   * what there is. @default false
   */
  accumulateAcrossExperiences?: boolean;
  /** Training steps; each collects one experience and updates from it. @default 1024 */
  trainingSteps?: number;
  /** Graphs grown for each training step. @default 8 */
  numEpisodesPerExperience?: number;
  /** Course of the learning rate over the training steps. @default "constant" */
  schedule?: ScheduleName;
  /** Training steps over which the learning rate grows from 0. @default 0 */
  warmupSteps?: number;
  /** Largest joint norm of all gradients; 0 leaves them as they are. @default 10 */
  clipGradNorm?: number;
  /** Default: the optimizer's own. */
  weightDecay?: number;
  /** Decay rates of Adam's two moments; only for adam and adamw. Default: the optimizer's own. */
  betas?: readonly [number, number];
  /** Ends training when a metric has not improved for a while. Default: training goes on to the last step. */
  earlyStopping?: EarlyStoppingOptions | undefined;
  /** What is done about losses and gradients that are not finite. */
  nonFinite?: NonFiniteOptions;
  /** Names all random draws of the run; 0 is a seed like any other. @default 0 */
  seed?: number;
}

/** An update whose loss or gradient is not finite is left out, with a warning, and counted. */
export interface NonFiniteOptions {
  /** So many of them in a row end training with an error; 1: the first one does. @default 5 */
  stopAfter?: number;
}

const whole = (least: number) => z.int().min(least);
const share = z.number().min(0).lt(1);

// What a resumed run may change: how long it runs and what it writes, not what a step computes.
export const FREE = { resume: "free" };

/** The options of any training, with the defaults of the Python toolbox's code. */
export const trainingOptions = z.strictObject({
  trainingSteps: whole(0)
    .default(1024)
    .meta(FREE)
    .describe("Steps; each collects one experience and updates from it"),
  numEpisodesPerExperience: whole(1).default(8).describe("Graphs grown for each step"),
  batchSize: whole(1).default(16).describe("Steps (pairs) in one forward and backward pass"),
  gradientAccumulationSteps: whole(1).default(1).describe("Batches summed up into one optimizer step"),
  accumulateAcrossExperiences: z
    .boolean()
    .default(false)
    .describe("A group of batches that is not full at the end of a step waits for those of the next"),
  optimizer: z.enum(optimizerNames).default("adamw").describe("How gradients change the weights"),
  learningRate: z.number().positive().default(3e-3).describe("Before the schedule scales it"),
  betas: z.tuple([share, share]).optional().describe("Of Adam and AdamW"),
  weightDecay: z.number().min(0).optional().describe("Default: the optimizer's own"),
  schedule: z.enum(scheduleNames).default("constant").describe("Of the learning rate"),
  warmupSteps: whole(0).default(0).describe("Steps in which the learning rate grows from 0"),
  clipGradNorm: z
    .number()
    .min(0)
    .default(10)
    .describe("Largest joint norm of all gradients; 0 = no clipping"),
  nonFinite: z
    .strictObject({
      stopAfter: whole(1)
        .default(5)
        .meta(FREE)
        .describe("So many of them in a row end training with an error; 1 = the first one does"),
    })
    .prefault({})
    .describe("Updates whose loss or gradient is not finite: they are left out, with a warning, and counted"),
  earlyStopping: earlyStoppingOptions
    .optional()
    .meta(FREE)
    .describe(
      "Ends training when a metric has not improved for a while. Default: it goes on to the last step",
    ),
  seed: whole(0).default(0).describe("Everything random in the run follows from it"),
});

/** How to train: checked once, then read only. Names are the Python toolbox's, camelCased and unabbreviated. */
export class TrainingConfiguration {
  readonly learningRate: number;
  readonly batchSize: number;
  readonly optimizer: OptimizerName;
  readonly gradientAccumulationSteps: number;
  readonly accumulateAcrossExperiences: boolean;
  readonly trainingSteps: number;
  readonly numEpisodesPerExperience: number;
  readonly schedule: ScheduleName;
  readonly warmupSteps: number;
  readonly clipGradNorm: number;
  readonly weightDecay: number | undefined;
  readonly betas: readonly [number, number] | undefined;
  readonly earlyStopping: EarlyStoppingOptions | undefined;
  readonly nonFinite: Readonly<Required<NonFiniteOptions>>;
  readonly seed: number;

  /** @throws UsageError that names the option, its rule and the value given */
  constructor(given: TrainingConfigurationOptions = {}) {
    const options = parseOptions("training", trainingOptions, given);
    const { optimizer, betas } = options;
    this.learningRate = options.learningRate;
    this.batchSize = options.batchSize;
    this.optimizer = optimizer;
    this.gradientAccumulationSteps = options.gradientAccumulationSteps;
    this.accumulateAcrossExperiences = options.accumulateAcrossExperiences;
    this.trainingSteps = options.trainingSteps;
    this.numEpisodesPerExperience = options.numEpisodesPerExperience;
    this.schedule = options.schedule;
    this.warmupSteps = options.warmupSteps;
    this.clipGradNorm = options.clipGradNorm;
    this.weightDecay = options.weightDecay;
    this.betas = betas;
    this.earlyStopping = options.earlyStopping;
    this.nonFinite = options.nonFinite;
    this.seed = options.seed;
    if (betas !== undefined && optimizer !== "adam" && optimizer !== "adamw") {
      throw new UsageError(`training: betas belong to adam and adamw, not to ${optimizer}; leave them out`);
    }
  }
}

/** @throws UsageError for a configuration of another class, such as the options alone */
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
