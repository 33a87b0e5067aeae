import { saveCausalLM, type CausalLM, type LoadedCausalLM, type Tokenizer } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";
import { ModelShelf } from "../models/index.js";
import { versionOf, type TesterWeights } from "./tester-weights.js";

/**
 * A tester all of whose weights are trained: a float32 master, and a copy of it in the inference type to speak with. Where
 * both compute in float32 the master serves for both; and until the first update a frozen model with the same weights
 * does, so that no copy is made for nothing.
 */
export class FullWeights implements TesterWeights {
  readonly tokenizer: Tokenizer;
  readonly model: CausalLM;
  readonly #shelf: ModelShelf;
  #speaking: CausalLM;
  /** Whether `#speaking` is this tester's own copy, so that it may be overwritten. */
  #own: boolean;
  /** Which state of the master `#speaking` is a copy of. */
  #copied: number;

  /** @param twin frozen weights equal to the master's; null where there are none */
  constructor(shelf: ModelShelf, { model, tokenizer }: LoadedCausalLM, twin: CausalLM | null) {
    this.#shelf = shelf;
    this.model = model;
    this.tokenizer = tokenizer;
    const direct = model.dtype === shelf.dtype && model.computeDtype === shelf.dtype;
    this.#own = !direct && twin === null;
    this.#speaking = direct ? model : (twin ?? shelf.own(model.copy(shelf.dtype)));
    this.#copied = this.version;
  }

  /** Several optimizer steps in a row cost one copy: it is made when somebody next speaks. */
  get speaking(): CausalLM {
    if (this.#speaking === this.model) return this.model;
    const state = this.version;
    if (state === this.#copied) return this.#speaking;
    this.#copied = state;
    if (this.#own) {
      this.#speaking.copyFrom(this.model);
    } else {
      this.#speaking = this.#shelf.own(this.model.copy(this.#shelf.dtype));
      this.#own = true;
    }
    return this.#speaking;
  }

  get version(): number {
    return versionOf(this.parameters());
  }

  *parameters(): Iterable<Tensor> {
    yield* this.model.namedParameters().values();
  }

  training<T>(compute: () => T): T {
    return compute();
  }

  /** In Hugging Face's format. */
  save(folder: string): Promise<void> {
    return saveCausalLM(folder, this.model, this.tokenizer);
  }

  async restore(source: string): Promise<void> {
    const types = { device: this.model.device, inferenceDtype: "float32" } as const;
    const shelf = await ModelShelf.open(types, { tester: source });
    try {
      this.model.copyFrom((await shelf.frozen("tester")).model);
    } finally {
      shelf.dispose();
    }
  }
}
