import type { LocalModel } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import type { SystemNeed, TokenTable } from "../core/index.js";
import { ModelShelf } from "../models/index.js";
import { FrozenTester } from "../tester/index.js";
import { ASTSystem } from "./ast-system.js";
import type { ASTSystemOptions, SystemParts } from "./system-parts.js";
import { checkHFOptions, ModelFactory, type HFSystemOptions } from "./hf-parts.js";

export type HFEvaluationSystemOptions = HFSystemOptions;

/** The parts of an evaluation on Hugging Face checkpoints. */
export interface HFEvaluationParts extends SystemParts {
  tester: FrozenTester;
  target: LocalModel;
}

/**
 * Tester and target for evaluation only: one set of weights each (one in all where they are the same checkpoint), no
 * baseline, no gradients, nothing to train.
 */
export class HFEvaluationSystem extends ASTSystem {
  declare readonly parts: Readonly<HFEvaluationParts>;

  /** Most callers take `load`. */
  constructor(parts: HFEvaluationParts, options: ASTSystemOptions = {}) {
    super(parts, options);
  }

  /**
   * Loads the models and makes a system of the class that it is called on.
   *
   * @throws UsageError for a folder that is no checkpoint that can be read
   */
  static async load<T extends HFEvaluationSystem>(
    this: new (parts: HFEvaluationParts, options: ASTSystemOptions) => T,
    options: HFEvaluationSystemOptions,
  ): Promise<T> {
    const own = checkHFOptions(this.name, options);
    const { scorer, reward, embedder, otherTesters = [], otherTargets = [] } = options;
    const shelf = await ModelShelf.open(
      options,
      { tester: options.tester, target: options.target },
      { tester: otherTesters, target: otherTargets },
    );
    try {
      const tester = await shelf.frozen("tester");
      const target = await shelf.frozen("target");
      const factory = new ModelFactory(shelf, options);
      const parts: HFEvaluationParts = {
        tester: new FrozenTester("tester", {
          ...factory.options("tester"),
          role: "tester",
          tokenizer: tester.tokenizer,
          model: () => tester.model,
        }),
        otherTesters: await factory.others("tester", shelf, otherTesters),
        target: factory.model("target", target),
        otherTargets: await factory.others("target", shelf, otherTargets),
        scorer,
        ...(reward === undefined ? {} : { reward }),
        ...(embedder === undefined ? {} : { embedder }),
      };
      return new this(parts, own);
    } catch (error) {
      shelf.dispose();
      throw error;
    }
  }

  get tester(): FrozenTester {
    return this.parts.tester;
  }

  get target(): LocalModel {
    return this.parts.target;
  }

  override lacks(need: SystemNeed): string | null {
    return need === "baseline"
      ? "has none, since it only evaluates; use HFASTSystem to train"
      : super.lacks(need);
  }

  override getBaselineLogprobs(): Promise<TokenTable> {
    const message = "HFEvaluationSystem: there is no baseline in an evaluation; use HFASTSystem to train";
    return Promise.reject(new UsageError(message));
  }
}
