/**
 * Helpers for tests.
 *
 * @module @astra-rl/torch/testing
 */
import { grad } from "./autograd.js";
import { tensor } from "./factories.js";
import { noGrad, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

export interface CheckGradientOptions {
  /** Step size of the central differences. Default: 1e-5. */
  epsilon?: number;
  /** Maximum difference, relative to the larger side, and absolute for values below 1. Default: 1e-6. */
  tolerance?: number;
  /** Number of random projections to compare. Default: 3. */
  projections?: number;
  /** Seed of the projections. Default: 1. */
  seed?: number;
}

/** A small separate generator, so that checks do not affect the streams under test. Values in (-1, 1). */
function projectionSource(seed: number): () => number {
  let state = (seed >>> 0) + 0x9e3779b9;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * 2 - 1;
  };
}

/**
 * Compares autograd with central differences in float64, along random directions: for the Jacobian J of `fn` and random
 * u, v it checks ⟨u, Jv⟩ = ⟨Jᵀu, v⟩. `inputs` must be float64; all of them are differentiated. `fn` must be smooth at
 * the inputs. Throws an Error with both sides if they differ.
 */
export function checkGradient(
  fn: (...inputs: Tensor[]) => Tensor,
  inputs: readonly Tensor[],
  options: CheckGradientOptions = {},
): void {
  const { epsilon = 1e-5, tolerance = 1e-6, projections = 3, seed = 1 } = options;
  for (const [index, input] of inputs.entries()) {
    if (input.dtype !== "float64")
      throw new Error(`checkGradient: input ${index} must be float64, got ${input.dtype}`);
  }
  const next = projectionSource(seed);
  const like = (model: Tensor) =>
    tensor(Float64Array.from({ length: model.numel() }, next), { shape: model.shape });
  scope(() => {
    const leaves = inputs.map((input) => input.detach().clone().requiresGrad_());
    const output = fn(...leaves);
    for (let round = 0; round < projections; round++) {
      const u = like(output);
      const directions = leaves.map(like);
      const gradients = grad(output, leaves, { gradOutputs: u, allowUnused: true, retainGraph: true });
      let fromAutograd = 0;
      gradients.forEach((gradient, index) => {
        if (gradient !== null)
          fromAutograd += gradient
            .mul(directions[index] as Tensor)
            .sum()
            .item();
      });
      const along = (distance: number) =>
        noGrad(() =>
          fn(...leaves.map((leaf, i) => leaf.detach().add(directions[i] as Tensor, { alpha: distance })))
            .mul(u)
            .sum()
            .item(),
        );
      const fromDifferences = (along(epsilon) - along(-epsilon)) / (2 * epsilon);
      const scale = Math.max(1, Math.abs(fromAutograd), Math.abs(fromDifferences));
      if (!(Math.abs(fromAutograd - fromDifferences) <= tolerance * scale)) {
        throw new Error(
          `checkGradient: projection ${round}: autograd gives ${fromAutograd}, central differences ${fromDifferences}`,
        );
      }
    }
  });
}
