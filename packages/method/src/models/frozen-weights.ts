import { noGrad } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import { TesterWeights } from "./tester-weights.js";

/** Weights of a tester that is only evaluated, without gradients. */
export class FrozenWeights extends TesterWeights {
  parameters(): [] {
    return [];
  }

  /** No gradient: `checked.getTesterLogprobs`, which training calls, refuses the result. */
  override training<T>(compute: () => T): T {
    return noGrad(compute);
  }

  save(): Promise<void> {
    return Promise.reject(
      new UsageError("nothing-trained", "tester: nothing was trained, so there is nothing to save"),
    );
  }

  restore(): Promise<void> {
    return Promise.reject(
      new UsageError(
        "evaluated-only",
        "tester: is only evaluated and cannot take other weights; load the system with them",
      ),
    );
  }
}
