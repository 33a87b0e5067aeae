import { LoRA, type LoadedCausalLM, type LoRAConfiguration } from "@astra-rl/lm";
import { noGrad, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { TesterWeights } from "./tester-weights.js";

export interface LoRAOptions extends LoRAConfiguration {
  /** Seed of the adapter's initialization. Default 0. */
  seed?: number;
}

type BaseName = Parameters<LoRA["save"]>[1];

/**
 * LoRA fine-tuning: a frozen base, which target and baseline may share, and a small trained adapter. Generation uses
 * the base with the adapter, so nothing is copied after an update.
 */
export class LoRAWeights extends TesterWeights {
  readonly #adapter: LoRA;
  readonly #baseName: BaseName;

  /** @param baseName base model name to write into the saved adapter */
  constructor(base: LoadedCausalLM, baseName: BaseName, { seed = 0, ...configuration }: LoRAOptions) {
    const { model, tokenizer } = base;
    const adapter = LoRA.create(model.projections(), configuration, { seed, device: model.device });
    super({ tokenizer, model: model.withAdapter(adapter) });
    this.#adapter = adapter;
    this.#baseName = baseName;
  }

  *parameters(): Iterable<Tensor> {
    yield* this.#adapter.namedParameters().values();
  }

  override training<T>(compute: () => T): T {
    this.#adapter.training = true;
    try {
      return compute();
    } finally {
      this.#adapter.training = false;
    }
  }

  /** In PEFT format, with the tokenizer in the same folder. */
  async save(folder: string): Promise<void> {
    await this.#adapter.save(folder, this.#baseName);
    await this.tokenizer.save(folder);
  }

  async restore(source: string): Promise<void> {
    const { device } = this.model;
    const { configuration } = this.#adapter;
    const saved = await LoRA.load(source, this.model.projections(), { device });
    try {
      const values = saved.namedParameters();
      const own = this.#adapter.namedParameters();
      const fits = [...own].every(([name, tensor]) => values.get(name)?.shape.join() === tensor.shape.join());
      const { rank, alpha, targetModules } = saved.configuration;
      if (!fits || values.size !== own.size || alpha !== configuration.alpha) {
        throw new UsageError(
          "adapter-mismatch",
          `${source}: this run's rank, alpha and target modules must be those of the adapter: set models.lora to ` +
            `{rank: ${rank}, alpha: ${alpha}, targetModules: [${targetModules.join(", ")}]}`,
        );
      }
      noGrad(() => {
        for (const [name, tensor] of own) tensor.copy_(values.get(name)!);
      });
    } finally {
      saved.dispose();
    }
  }

  dispose(): void {
    this.#adapter.dispose();
  }
}
