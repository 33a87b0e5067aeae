import type { CausalLM, LoadedCausalLM, Tokenizer } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";

/** The weights that a tester speaks with, and those that training changes. */
export abstract class TesterWeights {
  readonly tokenizer: Tokenizer;
  readonly model: CausalLM;

  /** @param model computes log-probabilities with a gradient into `parameters()` */
  constructor({ tokenizer, model }: Pick<LoadedCausalLM, "tokenizer" | "model">) {
    this.tokenizer = tokenizer;
    this.model = model;
  }

  /** What the tester speaks with now; brought up to date by itself where the parameters have changed. */
  get speaking(): CausalLM {
    return this.model;
  }

  /** What training changes; none for weights that are only evaluated. */
  abstract parameters(): Iterable<Tensor>;

  /** Runs a computation that a gradient will flow through. */
  training<T>(compute: () => T): T {
    return compute();
  }

  abstract save(folder: string): Promise<void>;

  /** Takes the weights of a saved tester, in place: optimizers keep their hold of the parameters. */
  abstract restore(source: string): Promise<void>;
}

/** Grows with every change of a parameter. */
export function versionOf(parameters: Iterable<Tensor>): number {
  let sum = 0;
  for (const parameter of parameters) sum += parameter.version;
  return sum;
}
