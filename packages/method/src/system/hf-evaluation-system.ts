import { FrozenWeights, type Model, type Tester } from "../models/index.js";
import { nll, PRESET_WEIGHTS, Reward } from "../reward/index.js";
import { ASTSystem } from "./ast-system.js";
import type { ASTSystemOptions, SystemParts } from "./system-parts.js";
import { checkHFOptions, isModel, loadHFSystem, requireModels, type HFSystemOptions } from "./hf-parts.js";

export type HFEvaluationSystemOptions = HFSystemOptions;

/** The paper's reward without a scorer: only the likelihood of probes. */
const withoutScores = () => new Reward([{ term: nll(), weight: -PRESET_WEIGHTS.paper.likelihoodWeight }]);

/** The parts of an evaluation on Hugging Face checkpoints. */
export interface HFEvaluationParts extends SystemParts {
  tester: Tester;
  target: Model;
}

/**
 * Tester and target for evaluation only: one set of weights each (shared if both are the same checkpoint), no baseline,
 * no gradients.
 *
 * The scorer may be omitted if an evaluator has its own or only conversations are needed: rollouts then record no
 * scores, and rewards are those of the likelihood alone.
 */
export class HFEvaluationSystem extends ASTSystem {
  declare readonly parts: Readonly<HFEvaluationParts>;

  /** Most callers use `load`. */
  constructor(parts: HFEvaluationParts, options: ASTSystemOptions = {}) {
    requireModels(new.target.name, parts);
    super(parts, options);
  }

  /**
   * Loads the models and constructs the class it is called on.
   *
   * @throws UsageError for a folder that is not a readable checkpoint
   */
  static async load<T extends HFEvaluationSystem>(
    this: new (parts: HFEvaluationParts, options: ASTSystemOptions) => T,
    options: HFEvaluationSystemOptions,
  ): Promise<T> {
    checkHFOptions(this.name, options, [], ["tester", "target"]);
    const { scorer, reward = scorer === undefined ? withoutScores() : undefined } = options;
    return loadHFSystem(this, { ...options, ...(reward === undefined ? {} : { reward }) }, async (shelf) => {
      return isModel(options.tester) ? {} : { weights: new FrozenWeights(await shelf.frozen("tester")) };
    });
  }

  get tester(): Tester {
    return this.parts.tester;
  }

  get target(): Model {
    return this.parts.target;
  }
}
