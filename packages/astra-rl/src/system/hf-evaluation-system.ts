import { UsageError, type Tensor } from "@astra-rl/torch";
import { TokenTable, type Scorer, type Sources } from "../core/index.js";
import {
  LanguageModelSystem,
  type LanguageModelSystemOptions,
  type SystemModels,
} from "./language-model-system.js";
import { ModelShelf, type ModelShelfOptions, type ModelSource } from "./model-shelf.js";

export interface HFEvaluationSystemOptions extends LanguageModelSystemOptions, ModelShelfOptions {
  tester: ModelSource;
  target: ModelSource;
  scorer: Scorer;
}

/**
 * Tester and target for evaluation only: one set of weights each (one in all where they are the same checkpoint), no
 * baseline, no gradients, nothing to train.
 */
export class HFEvaluationSystem extends LanguageModelSystem {
  readonly #shelf: ModelShelf;

  private constructor(
    scorer: Scorer,
    models: SystemModels,
    shelf: ModelShelf,
    options: LanguageModelSystemOptions,
  ) {
    super(scorer, models, options);
    this.#shelf = shelf;
  }

  /** @throws UsageError for a folder that is no checkpoint that can be read */
  static async load(options: HFEvaluationSystemOptions): Promise<HFEvaluationSystem> {
    const shelf = await ModelShelf.open(options, [options.tester, options.target]);
    try {
      const tester = await shelf.frozen(options.tester);
      const target = await shelf.frozen(options.target, shelf.targetDevice);
      return new HFEvaluationSystem(
        options.scorer,
        { tester, target, targetIsBaseline: false },
        shelf,
        options,
      );
    } catch (error) {
      shelf.dispose();
      throw error;
    }
  }

  /** Without a gradient: `getTesterLogprobsAndValidate`, which training uses, refuses it. */
  override getTesterLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const rows = this.tester.score(this.testerRows(contexts, continuations, sources));
    return Promise.resolve(TokenTable.ofRows(rows, this.tester.model.device));
  }

  override getBaselineLogprobs(): Promise<TokenTable> {
    const message = "HFEvaluationSystem: there is no baseline in an evaluation; use HFASTSystem to train";
    return Promise.reject(new UsageError(message));
  }

  /** Nothing is trained. */
  override parameters(): Iterable<Tensor> {
    return [];
  }

  override dispose(): void {
    this.#shelf.dispose();
  }
}
