import {
  requireWhole,
  TrainingConfiguration,
  type TrainingConfigurationOptions,
} from "./training-configuration.js";

export interface HFASTConfigurationOptions extends TrainingConfigurationOptions {
  /** Training steps between two evaluations on the dev prompts; 0: none. @default 200 */
  evaluateEvery?: number;
  /** Dev prompts of one evaluation. Default: all. */
  evaluationRollouts?: number;
  /**
   * Training steps between two checkpoints; 0: only at the end. With 1, a run that is killed loses at most the step
   * in flight; with more it computes again up to so many steps, with the same result. A checkpoint is about three
   * times as large as the weights in float32 under Adam. @default 1
   */
  checkpointEvery?: number;
}

/** Training of a language model, with the Python toolbox's defaults: learning rate 1e-5, batch 4, 1000 steps of 2 episodes. */
export class HFASTConfiguration extends TrainingConfiguration {
  readonly evaluateEvery: number;
  readonly evaluationRollouts: number | undefined;
  readonly checkpointEvery: number;

  constructor({
    evaluateEvery = 200,
    evaluationRollouts,
    checkpointEvery = 1,
    ...options
  }: HFASTConfigurationOptions = {}) {
    super({
      ...options,
      learningRate: options.learningRate ?? 1e-5,
      batchSize: options.batchSize ?? 4,
      trainingSteps: options.trainingSteps ?? 1000,
      numEpisodesPerExperience: options.numEpisodesPerExperience ?? 2,
    });
    this.evaluateEvery = requireWhole("evaluateEvery", evaluateEvery, 0);
    this.evaluationRollouts =
      evaluationRollouts === undefined
        ? undefined
        : requireWhole("evaluationRollouts", evaluationRollouts, 1);
    this.checkpointEvery = requireWhole("checkpointEvery", checkpointEvery, 0);
  }
}
