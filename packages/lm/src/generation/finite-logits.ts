import { NotFiniteError } from "@astra-rl/base";
import type { Tensor } from "@astra-rl/torch";

/** @throws NotFiniteError if a logit is NaN or +∞, so that nothing can be sampled */
export function checkLogits(logits: Tensor): void {
  const greatest = logits.max().item();
  if (!Number.isFinite(greatest)) throw noFiniteLogits(greatest);
}

export const noFiniteLogits = (greatest: number) =>
  new NotFiniteError(
    `the model gives no finite logits (${greatest}): its weights are damaged, or training has made them diverge`,
  );
