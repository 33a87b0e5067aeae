import { saveCausalLM, type CausalLM, type LoadedCausalLM } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";
import { ModelCache } from "./model-cache.js";
import { TesterWeights, versionOf } from "./tester-weights.js";

/**
 * Full fine-tuning: float32 master weights, and a copy in the inference dtype for generation. No copy is made if the
 * master computes in the inference dtype, or, until the first update, if a frozen model has the same weights.
 */
export class FullWeights extends TesterWeights {
  readonly #shelf: ModelCache;
  /** Frozen weights equal to the master's at `#copied`; the master itself if it computes in the inference dtype. */
  #speaking: CausalLM | null;
  #copy: CausalLM | null = null;
  /** Version of the master that `#speaking` equals. */
  #copied: number;

  /** @param twin frozen weights equal to the master's; null if there are none */
  constructor(shelf: ModelCache, master: LoadedCausalLM, twin: CausalLM | null) {
    super(master);
    this.#shelf = shelf;
    const { model } = master;
    const isDirect = model.dtype === shelf.dtype && model.computeDtype === shelf.dtype;
    this.#speaking = isDirect ? model : twin;
    this.#copied = versionOf(this.parameters());
  }

  /** Copies lazily, on the next generation, so that several optimizer steps in a row cost one copy. */
  override get speaking(): CausalLM {
    if (this.#speaking === this.model) return this.model;
    const version = versionOf(this.parameters());
    if (this.#speaking !== null && version === this.#copied) return this.#speaking;
    this.#copied = version;
    if (this.#copy === null) this.#copy = this.#shelf.own(this.model.copy(this.#shelf.dtype));
    else this.#copy.copyFrom(this.model);
    return (this.#speaking = this.#copy);
  }

  *parameters(): Iterable<Tensor> {
    yield* this.model.namedParameters().values();
  }

  /** In Hugging Face format. */
  save(folder: string): Promise<void> {
    return saveCausalLM(folder, this.model, this.tokenizer);
  }

  async restore(source: string): Promise<void> {
    const types = { device: this.model.device, inferenceDtype: "float32" } as const;
    const shelf = await ModelCache.open(types, { tester: [source] });
    try {
      this.model.copyFrom((await shelf.frozen("tester")).model);
    } finally {
      shelf.dispose();
    }
  }
}
