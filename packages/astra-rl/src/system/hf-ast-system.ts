import type { CausalLM, LoadedCausalLM } from "@astra-rl/lm";
import { UsageError, type Tensor } from "@astra-rl/torch";
import { TokenTable, type Scorer, type Sources, type WorkCounters } from "../core/index.js";
import { FullTester } from "./full-tester.js";
import {
  LanguageModelSystem,
  type LanguageModelSystemOptions,
  type SystemModels,
} from "./language-model-system.js";
import { LoRATester, type LoRAOptions } from "./lora-tester.js";
import { ModelRole } from "./model-role.js";
import { ModelShelf, type ModelShelfOptions, type ModelSource } from "./model-shelf.js";
import { tokenizersAgree } from "./tokenizers-agree.js";
import type { TrainedTester } from "./trained-tester.js";
import { turnTokens } from "./turn-tokens.js";

export interface HFASTSystemOptions extends LanguageModelSystemOptions, ModelShelfOptions {
  /** Where the tester starts. */
  tester: ModelSource;
  target: ModelSource;
  /** Frozen reference for the tester. Default: where the tester starts. */
  baseline?: ModelSource;
  scorer: Scorer;
  /** Train a low-rank adapter instead of all weights. Default: all weights. */
  lora?: LoRAOptions;
  /**
   * Updates keep only what lies between layers and compute the layers twice: less memory, a third more work, the same
   * gradients. On the CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
}

/**
 * Trains a causal language model as tester against another as target.
 *
 * Weights: those that the optimizer changes (a float32 master, or an adapter); those that the tester speaks with in the
 * inference type, refreshed at the first rollout after `testerUpdated()`; the target's; the baseline's. Checkpoints that play several roles are
 * held once.
 */
export class HFASTSystem extends LanguageModelSystem {
  readonly #shelf: ModelShelf;
  readonly #trained: TrainedTester;
  readonly #baseline: ModelRole;
  readonly #gradientCheckpointing: boolean;

  private constructor(
    scorer: Scorer,
    models: Omit<SystemModels, "tester"> & { trained: TrainedTester; baseline: LoadedCausalLM },
    shelf: ModelShelf,
    options: LanguageModelSystemOptions & { gradientCheckpointing?: boolean },
  ) {
    const { trained, baseline, ...rest } = models;
    const tester = {
      tokenizer: trained.tokenizer,
      get model() {
        return trained.speaking;
      },
    };
    super(scorer, { ...rest, tester }, options);
    this.#shelf = shelf;
    this.#trained = trained;
    this.#gradientCheckpointing = options.gradientCheckpointing ?? false;
    this.#baseline = new ModelRole("baseline", {
      ...this.roleOptions,
      tokenizer: baseline.tokenizer,
      model: () => baseline.model,
      sampling: this.tester.sampling,
    });
  }

  /** @throws UsageError for a folder that is no checkpoint that can be read, or tokenizers that cannot work together */
  static async load(options: HFASTSystemOptions): Promise<HFASTSystem> {
    const { scorer, baseline: baselineSource = options.tester, device = "cpu" } = options;
    if (options.gradientCheckpointing === true && device !== "cpu") {
      throw new UsageError(
        `HFASTSystem: gradientCheckpointing works on the device "cpu" only, got "${device}"; switch it off, or train an ` +
          `adapter (lora), which needs less memory, too`,
      );
    }
    const shelf = await ModelShelf.open(options, [options.tester, options.target, baselineSource]);
    try {
      const target = await shelf.frozen(options.target, shelf.targetDevice);
      const baseline = await shelf.frozen(baselineSource);
      const trained = await trainedTester(shelf, options, baselineSource, baseline);
      if (!tokenizersAgree(trained.tokenizer, baseline.tokenizer)) {
        throw new UsageError(
          "HFASTSystem: the baseline must have the tester's tokenizer, since both score the same tokens; " +
            "choose the tester's initial checkpoint or another of its family",
        );
      }
      const targetIsBaseline = target.model === baseline.model;
      return new HFASTSystem(scorer, { trained, target, baseline, targetIsBaseline }, shelf, options);
    } catch (error) {
      shelf.dispose();
      throw error;
    }
  }

  /** The model that is trained; owned by the system. */
  get testerModel(): CausalLM {
    return this.#trained.model;
  }

  override parameters(): Iterable<Tensor> {
    return this.#trained.parameters();
  }

  /** Brings the optimizer's changes to the weights that roll out. */
  override testerUpdated(): Promise<void> {
    this.#trained.updated();
    return Promise.resolve();
  }

  override getTesterLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const rows = this.testerRows(contexts, continuations, sources);
    const { model } = this.#trained;
    const options = { gradientCheckpointing: this.#gradientCheckpointing };
    return Promise.resolve(this.#trained.training(() => this.tester.train(model, rows, options)));
  }

  /** Recorded numbers where the rollout or an earlier call has left them; the rest is computed and recorded. */
  override getBaselineLogprobs(
    contexts: readonly string[],
    continuations: readonly string[],
    sources?: Sources,
  ): Promise<TokenTable> {
    const known = turnTokens(this, contexts, continuations, sources);
    const rows = this.testerRows(contexts, continuations, sources);
    const missing = known.flatMap((tokens, row) =>
      (tokens?.baselineLogprobs ?? null) === null ? [row] : [],
    );
    const scored = this.#baseline.score(missing.map((row) => rows[row]!));
    const computed = new Map(missing.map((row, index) => [row, scored[index]!]));
    for (const [row, logprobs] of computed) {
      const tokens = known[row];
      if (tokens) tokens.baselineLogprobs = logprobs;
    }
    const all = known.map((tokens, row) => computed.get(row) ?? tokens!.baselineLogprobs!);
    return Promise.resolve(TokenTable.ofRows(all, this.#trained.model.device));
  }

  override counters(): WorkCounters {
    return { ...super.counters(), baseline: this.#baseline.work };
  }

  /** Writes the tester: a checkpoint in Hugging Face's format, or, where an adapter is trained, the adapter in PEFT's. */
  saveTester(folder: string): Promise<void> {
    return this.#trained.save(folder);
  }

  /** Takes the weights of a saved tester, in place: optimizers keep their hold of the parameters. */
  async restoreTester(source: ModelSource): Promise<void> {
    await this.#trained.restore(source);
    await this.testerUpdated();
  }

  override dispose(): void {
    this.#shelf.dispose();
  }
}

async function trainedTester(
  shelf: ModelShelf,
  { tester, lora }: HFASTSystemOptions,
  baselineSource: ModelSource,
  baseline: LoadedCausalLM,
): Promise<TrainedTester> {
  if (lora !== undefined) {
    return shelf.own(new LoRATester(await shelf.frozen(tester), await shelf.nameOf(tester), lora));
  }
  const startsAsBaseline = await shelf.same(tester, baselineSource);
  return new FullTester(shelf, await shelf.trainable(tester), startsAsBaseline ? baseline.model : null);
}
