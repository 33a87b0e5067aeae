import { adapterBaseName, ValueHead, type CausalLM, type LocalModel } from "@astra-rl/lm";
import { UsageError } from "@astra-rl/base";
import {
  FullWeights,
  LoRAWeights,
  type Model,
  type ComputeTypes,
  type ModelCache,
  type ModelSource,
  type LocalTester,
  type LoRAOptions,
  type TesterWeights,
} from "../models/index.js";
import type { Scorer } from "../scorer/index.js";
import { ASTSystem } from "./ast-system.js";
import { foreignBaseline } from "./system-checks.js";
import type { ASTSystemOptions, SystemParts } from "./system-parts.js";
import {
  checkHFOptions,
  isModel,
  loadHFSystem,
  requireModels,
  sourceOf,
  type HFSystemOptions,
} from "./hf-parts.js";

export interface HFASTSystemOptions extends HFSystemOptions {
  scorer: Scorer;
  /** Frozen reference for the tester. Default: the tester's initial checkpoint. */
  baseline?: ModelSource;
  /** Train a low-rank adapter instead of all weights. Default: all weights. */
  lora?: LoRAOptions;
  /**
   * Store only the activations between layers and recompute the rest in the backward pass: less memory, a third more
   * compute, the same gradients. CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
  /**
   * Give the tester a value head, for actor-critic algorithms. It is loaded from the tester's folder if saved there,
   * else initialized to zero. Default false.
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
 * Weights in memory: trained (float32 master weights, or an adapter); the tester's for generation, in the inference
 * dtype and refreshed automatically when the parameters have changed; the target's; the baseline's. A checkpoint used
 * in several roles is loaded once.
 */
export class HFASTSystem extends ASTSystem {
  declare readonly parts: Readonly<HFParts>;

  /** Most callers use `load`. */
  constructor(parts: HFParts, options: ASTSystemOptions = {}) {
    requireModels(new.target.name, parts);
    super(parts, options);
  }

  /**
   * Loads the models and constructs the class it is called on.
   *
   * @throws UsageError for a folder that is not a readable checkpoint, or incompatible tokenizers
   */
  static async load<T extends HFASTSystem>(
    this: new (parts: HFParts, options: ASTSystemOptions) => T,
    options: HFASTSystemOptions,
  ): Promise<T> {
    checkHFOptions(
      this.name,
      options,
      ["baseline", "lora", "gradientCheckpointing", "valueHead"],
      ["tester", "target", "scorer"],
    );
    if (isModel(options.tester)) {
      throw new UsageError(
        "not-a-checkpoint",
        `${this.name}.load: tester must be a checkpoint, since its weights are trained, got the model ${options.tester.name}`,
      );
    }
    const { gradientCheckpointing = false, valueHead = false, testerDevice, device = "cpu" } = options;
    if (gradientCheckpointing && (testerDevice ?? device) !== "cpu") {
      throw new UsageError(
        "cpu-only",
        `HFASTSystem: gradientCheckpointing works on the device "cpu" only, got "${testerDevice ?? device}"; switch it off, ` +
          `or train an adapter (lora), which also needs less memory`,
      );
    }
    return loadHFSystem(this, options, async (shelf) => {
      // ASTSystem checks this again; checking here fails before any weights are loaded.
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

  /** The trained model; owned by the system. */
  get testerModel(): CausalLM {
    return this.parts.tester.weights.model;
  }

  /** Affects results: a resumed run must use the same. null for a tester without weights. */
  get computeTypes(): ComputeTypes | null {
    // A replay loads the class without the parts for training.
    if ((this.parts.baseline as LocalModel | undefined) === undefined) return null;
    return { rollouts: this.parts.baseline.model.dtype, updates: this.testerModel.computeDtype };
  }
}

async function trainedWeights(
  shelf: ModelCache,
  { tester, lora, updateDtype = "auto" }: HFASTSystemOptions,
): Promise<TesterWeights> {
  if (lora === undefined) {
    const startsAsBaseline = await shelf.shares("tester", "baseline");
    const twin = startsAsBaseline ? (await shelf.frozen("baseline")).model : null;
    return new FullWeights(shelf, await shelf.trainable(), twin);
  }
  if (updateDtype !== "auto" && updateDtype !== shelf.dtype) {
    throw new UsageError(
      "dtype-mismatch",
      `HFASTSystem: an adapter's updates go through frozen weights, in their type (${shelf.dtype}), but updateDtype is ` +
        `${updateDtype}; leave it out, or set inferenceDtype to it`,
    );
  }
  const source = sourceOf(tester as ModelSource);
  const adapter = await shelf.testerAdapter();
  if (adapter === null)
    return shelf.own(new LoRAWeights(await shelf.frozen("tester"), adapterBaseName(source), lora));
  // Training of an adapter continues: the base stays the same, and so does its name.
  const weights = shelf.own(new LoRAWeights(adapter.model, adapterBaseName(adapter.base), lora));
  await weights.restore(adapter.folder);
  return weights;
}

function makeValueHead(shelf: ModelCache, { model }: TesterWeights): ValueHead {
  const head = shelf.own(new ValueHead(model));
  const folder = shelf.folderOf("tester");
  if (folder !== null && ValueHead.isIn(folder)) head.restore(folder);
  return head;
}
