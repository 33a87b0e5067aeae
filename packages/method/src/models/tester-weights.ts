import type { CausalLM, LoadedCausalLM, Tokenizer } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";

/** A tester's weights for generation and its trainable weights. */
export abstract class TesterWeights {
  readonly tokenizer: Tokenizer;
  readonly model: CausalLM;

  /** @param model computes log-probabilities with a gradient into `parameters()` */
  constructor({ tokenizer, model }: Pick<LoadedCausalLM, "tokenizer" | "model">) {
    this.tokenizer = tokenizer;
    this.model = model;
  }

  /** The model to generate with; updated automatically when the parameters have changed. */
  get speaking(): CausalLM {
    return this.model;
  }

  /** Trainable parameters; none for weights that are only evaluated. */
  abstract parameters(): Iterable<Tensor>;

  /** Runs a computation with gradients in training mode. */
  training<T>(compute: () => T): T {
    return compute();
  }

  abstract save(folder: string): Promise<void>;

  /** Loads the weights of a saved tester in place, so optimizers keep their references. */
  abstract restore(source: string): Promise<void>;
}

/** A counter that increases with every in-place change of a parameter. */
export function versionOf(parameters: Iterable<Tensor>): number {
  let sum = 0;
  for (const parameter of parameters) sum += parameter.version;
  return sum;
}
