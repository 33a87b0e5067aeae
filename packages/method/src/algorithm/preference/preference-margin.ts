import { tensor, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import type { MarginLossOptions } from "./preference-options.js";

/** Sequence log-probabilities of B preference pairs: sums over the continuation's tokens, each of shape [B]. */
export interface PreferenceLogprobs {
  /** log π(chosen | context), with a gradient into the tester. */
  chosen: Tensor;
  /** log π(rejected | context), with a gradient into the tester. */
  rejected: Tensor;
  /** log P_baseline(chosen | context); absent for a loss without a baseline. */
  baselineChosen?: Tensor;
  /** log P_baseline(rejected | context); absent for a loss without a baseline. */
  baselineRejected?: Tensor;
  /** Number of tokens of each chosen continuation; required for means over tokens. */
  chosenLengths?: readonly number[];
  /** Number of tokens of each rejected continuation; required for means over tokens. */
  rejectedLengths?: readonly number[];
  /** Credit of the chosen continuation minus that of the rejected one, of each pair; absent in batches made elsewhere. */
  creditGaps?: readonly number[];
}

/**
 * h = (log π(w) − log ref(w)) − (log π(l) − log ref(l)) of each pair, [B]: how much more the tester prefers the chosen
 * continuation than the baseline does. The argument of the DPO and IPO losses (inside σ of Rafailov et al., arXiv
 * 2305.18290, equation 7; h_π of Azar et al., arXiv 2310.12036).
 */
export function preferenceMargin(
  logprobs: PreferenceLogprobs,
  { lengthNormalize = false }: Pick<MarginLossOptions, "lengthNormalize"> = {},
): Tensor {
  const { chosen, rejected, baselineChosen, baselineRejected, chosenLengths, rejectedLengths } = logprobs;
  const pairs = chosen.shape[0] ?? 0;
  if (baselineChosen === undefined || baselineRejected === undefined) {
    throw new UsageError(
      "missing-baseline",
      "preferenceMargin: needs baselineChosen and baselineRejected, got none",
    );
  }
  for (const [name, value] of Object.entries({ chosen, rejected, baselineChosen, baselineRejected })) {
    if (value.ndim !== 1 || value.shape[0] !== pairs) {
      throw new UsageError(
        "shape-mismatch",
        `preferenceMargin: ${name} must have shape [${pairs}], one sum for each pair, got [${value.shape.join(", ")}]`,
      );
    }
  }
  const chosenRatio = chosen.sub(baselineChosen);
  const rejectedRatio = rejected.sub(baselineRejected);
  if (!lengthNormalize) return chosenRatio.sub(rejectedRatio);
  return chosenRatio
    .div(divisors("preferenceMargin: lengthNormalize", "chosenLengths", chosenLengths, chosen))
    .sub(
      rejectedRatio.div(
        divisors("preferenceMargin: lengthNormalize", "rejectedLengths", rejectedLengths, rejected),
      ),
    );
}

/**
 * Token counts that turn sums into means, [B]; 1 for an empty continuation, whose mean stays 0.
 *
 * @param where begins the error message
 * @throws UsageError unless there is one length for each sum
 */
export function divisors(
  where: string,
  name: string,
  values: readonly number[] | undefined,
  like: Tensor,
): Tensor {
  if (values === undefined || values.length !== like.shape[0]) {
    throw new UsageError(
      "length-mismatch",
      `${where} needs ${name} with ${like.shape[0]} token counts, got ` +
        (values === undefined ? "none" : String(values.length)),
    );
  }
  return tensor(
    values.map((length) => Math.max(1, length)),
    { dtype: like.dtype, device: like.device },
  );
}
