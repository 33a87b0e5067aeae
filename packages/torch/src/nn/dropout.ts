import { describeValue, UsageError } from "../errors.js";
import type { Generator } from "../generator.js";
import { rand } from "../factories.js";
import type { Tensor } from "../tensor.js";
import { Module } from "./module.js";

/**
 * In training, sets each element to 0 with probability `probability` and divides the others by
 * 1 − probability; in inference, returns its input itself.
 *
 * The draws come from `generator`, which the caller owns, seeds and saves: on the device of the input.
 */
export class Dropout extends Module {
  /** @throws UsageError unless 0 ≤ probability ≤ 1. */
  constructor(
    readonly probability: number,
    private readonly generator: Generator,
  ) {
    super();
    if (!(probability >= 0 && probability <= 1)) {
      throw new UsageError(`Dropout: the probability must lie in [0, 1], got ${describeValue(probability)}`);
    }
  }

  /** Any shape, floating dtype → same shape and dtype. */
  forward(input: Tensor): Tensor {
    const { probability, generator } = this;
    if (!this.training || probability === 0) return input;
    // With everything dropped, 1 / (1 − p) would be infinite and 0 · ∞ is not a number.
    if (probability === 1) return input.mul(0);
    const { shape, dtype, device } = input;
    const kept = rand(shape, { generator, dtype: "float32", device }).ge(probability).to(dtype);
    return input.mul(kept.mul_(1 / (1 - probability)));
  }
}
