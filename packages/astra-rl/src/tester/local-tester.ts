import { LocalSpeaker, type LocalSpeakerOptions, type ScoredRow } from "@astra-rl/lm";
import type { Tensor } from "@astra-rl/torch";
import { TokenTable, type Tester, type TesterOutput } from "../core/index.js";
import type { TesterWeights } from "./tester-weights.js";

export interface LocalTesterOptions extends Omit<LocalSpeakerOptions, "model" | "tokenizer"> {
  /**
   * Updates keep only what lies between layers and compute the layers twice: less memory, a third more work, the same
   * gradients. On the CPU only. Default false.
   */
  gradientCheckpointing?: boolean;
}

/** A tester of this process whose weights are trained. */
export class LocalTester extends LocalSpeaker implements Tester {
  readonly weights: TesterWeights;
  readonly #gradientCheckpointing: boolean;

  constructor(
    weights: TesterWeights,
    { gradientCheckpointing = false, ...options }: LocalTesterOptions,
    name = "tester",
  ) {
    super(name, { ...options, tokenizer: weights.tokenizer, model: () => weights.speaking });
    this.weights = weights;
    this.#gradientCheckpointing = gradientCheckpointing;
  }

  parameters(): Iterable<Tensor> {
    return this.weights.parameters();
  }

  forward(rows: readonly ScoredRow[]): TesterOutput {
    const options = { gradientCheckpointing: this.#gradientCheckpointing };
    const logprobs = this.weights.training(() => this.train(this.weights.model, rows, options));
    return {
      logprobs: new TokenTable(
        logprobs,
        rows.map(({ continuation }) => continuation.length),
      ),
    };
  }

  save(folder: string): Promise<void> {
    return this.weights.save(folder);
  }

  restore(source: string): Promise<void> {
    return this.weights.restore(source);
  }
}
