import type { CausalLM, Tokenizer } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";

/** The weights of a tester that training changes. */
export interface TesterWeights {
  readonly tokenizer: Tokenizer;
  /** Computes log-probabilities with a gradient into `parameters()`. */
  readonly model: CausalLM;
  /** What the tester speaks with now; brought up to date by itself where the parameters have changed. */
  readonly speaking: CausalLM;
  /** What training changes; none for weights that are only evaluated. */
  parameters(): Iterable<Tensor>;
  /** Runs a computation that a gradient will flow through. */
  training<T>(compute: () => T): T;
  save(folder: string): Promise<void>;
  /** Takes the weights of a saved tester, in place: optimizers keep their hold of the parameters. */
  restore(source: string): Promise<void>;
}

/** Grows with every change of a parameter. */
export function versionOf(parameters: Iterable<Tensor>): number {
  let sum = 0;
  for (const parameter of parameters) sum += parameter.version;
  return sum;
}
