import { adapterBaseName, ValueHead, type CausalLM, type LocalModel } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/torch";
import type { Model } from "../core/index.js";
import type { ComputeTypes, ModelShelf, ModelSource } from "../models/index.js";
import {
  FullWeights,
  LoRAWeights,
  type LocalTester,
  type LoRAOptions,
  type TesterWeights,
} from "../tester/index.js";
import { ASTSystem, foreignBaseline } from "./ast-system.js";
import type { ASTSystemOptions, SystemParts } from "./system-parts.js";
import { checkHFOptions, loadHFSystem, type HFSystemOptions } from "./hf-parts.js";

export interface HFASTSystemOptions extends HFSystemOptions {
  /** Frozen reference for the tester. Default: where the tester starts. */
  baseline?: ModelSource;
  /** Train a low-rank adapter instead of all weights. Default: all weights. */
  lora?: LoRAOptions;
  /**
   * Updates keep only what lies between layers and compute the layers twice: less memory, a third more work, the same
   * gradients. On the CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
  /**
   * Give the tester a value head, for actor-critic algorithms. It begins at zero, or where a head that lies beside the
   * tester's weights was. Default false.
   */
  valueHead?: boolean;
}

/** The parts of a system on Hugging Face checkpoints. */
export interface HFParts extends SystemParts {
  tester: LocalTester;
  target: Model;
  baseline: LocalModel;
}

/**
 * Trains a causal language model as tester against another as target.
 *
 * Weights: those that the optimizer changes (a float32 master, or an adapter); those that the tester speaks with in the
 * inference type, refreshed by themselves when the parameters have changed; the target's; the baseline's. Checkpoints
 * that play several roles are held once.
 */
export class HFASTSystem extends ASTSystem {
  declare readonly parts: Readonly<HFParts>;

  /** Most callers take `load`. */
  constructor(parts: HFParts, options: ASTSystemOptions = {}) {
    super(parts, options);
  }

  /**
   * Loads the models and makes a system of the class that it is called on.
   *
   * @throws UsageError for a folder that is no checkpoint that can be read, or tokenizers that cannot work together
   */
  static async load<T extends HFASTSystem>(
    this: new (parts: HFParts, options: ASTSystemOptions) => T,
    options: HFASTSystemOptions,
  ): Promise<T> {
    checkHFOptions(this.name, options, ["baseline", "lora", "gradientCheckpointing", "valueHead"]);
    const { gradientCheckpointing = false, valueHead = false, testerDevice, device = "cpu" } = options;
    if (gradientCheckpointing && (testerDevice ?? device) !== "cpu") {
      throw new UsageError(
        `HFASTSystem: gradientCheckpointing works on the device "cpu" only, got "${testerDevice ?? device}"; switch it off, ` +
          `or train an adapter (lora), which needs less memory, too`,
      );
    }
    return loadHFSystem(this, options, async (shelf) => {
      // Found out again where the parts meet; here it costs nobody the loading of all weights.
      if (await shelf.tellsTokensApart("tester", "baseline")) throw foreignBaseline(this.name);
      const weights = await trainedWeights(shelf, options);
      const head = valueHead ? { valueHead: makeValueHead(shelf, weights) } : {};
      return { weights, testerOptions: { gradientCheckpointing, ...head }, hasBaseline: true };
    });
  }

  get tester(): LocalTester {
    return this.parts.tester;
  }

  get target(): Model {
    return this.parts.target;
  }

  get baseline(): LocalModel {
    return this.parts.baseline;
  }

  /** The model that is trained; owned by the system. */
  get testerModel(): CausalLM {
    return this.parts.tester.weights.model;
  }

  /** Part of what a run computes: a resumed one must have the same. */
  get computeTypes(): ComputeTypes {
    return { rollouts: this.parts.baseline.model.dtype, updates: this.testerModel.computeDtype };
  }
}

async function trainedWeights(
  shelf: ModelShelf,
  { tester, lora, updateDtype = "auto" }: HFASTSystemOptions,
): Promise<TesterWeights> {
  if (lora === undefined) {
    const startsAsBaseline = await shelf.shares("tester", "baseline");
    const twin = startsAsBaseline ? (await shelf.frozen("baseline")).model : null;
    return new FullWeights(shelf, await shelf.trainable(), twin);
  }
  if (updateDtype !== "auto" && updateDtype !== shelf.dtype) {
    throw new UsageError(
      `HFASTSystem: an adapter's updates go through frozen weights, in their type (${shelf.dtype}), but updateDtype is ` +
        `${updateDtype}; leave it out, or set inferenceDtype to it`,
    );
  }
  return shelf.own(new LoRAWeights(await shelf.frozen("tester"), adapterBaseName(tester), lora));
}

function makeValueHead(shelf: ModelShelf, { model }: TesterWeights): ValueHead {
  const head = shelf.own(new ValueHead(model));
  const folder = shelf.folderOf("tester");
  if (folder !== null && ValueHead.isIn(folder)) head.restore(folder);
  return head;
}
