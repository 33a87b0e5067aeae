import { LocalSpeaker, type ScoredRow } from "@astra-rl/lm";
import { noGrad, UsageError, type Tensor } from "@astra-rl/torch";
import { TokenTable, type Tester, type TesterOutput } from "../core/index.js";

/** A tester that is only evaluated: one set of weights, without gradients, nothing to train. */
export class FrozenTester extends LocalSpeaker implements Tester {
  parameters(): Iterable<Tensor> {
    return [];
  }

  /** Without a gradient: `getTesterLogprobsAndValidate`, which training uses, refuses it. */
  forward(rows: readonly ScoredRow[]): TesterOutput {
    const logprobs = noGrad(() => this.train(this.model, rows));
    return {
      logprobs: new TokenTable(
        logprobs,
        rows.map(({ continuation }) => continuation.length),
      ),
    };
  }

  save(): Promise<void> {
    return Promise.reject(new UsageError(`${this.name}: nothing was trained, so there is nothing to save`));
  }

  restore(): Promise<void> {
    return Promise.reject(
      new UsageError(`${this.name}: is only evaluated; load the system with the weights that are wanted`),
    );
  }
}
