import { describeValue, TorchError, UsageError } from "@astra-rl/base";
import { addon } from "./native.js";
import { stack } from "./operators.js";
import { noGrad, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link clipGradNorm_}. */
export interface ClipGradNormOptions {
  /** Throws a TorchError if the norm is infinite or NaN. Default false: return it. */
  errorIfNonfinite?: boolean;
}

/**
 * Scales all gradients in place by one common factor, so that their joint norm is at most `maxNorm`.
 *
 * The norm is the Euclidean norm of all gradients concatenated into one vector, not one norm per gradient. The factor
 * is maxNorm / (norm + 1e-6); gradients whose norm is small enough stay unchanged.
 *
 * If the norm is infinite or NaN, no factor can repair the gradients: they stay unchanged (PyTorch would multiply them
 * by 0 or NaN), and the caller must check the returned norm and skip the step.
 *
 * @param maxNorm ≥ 0; Infinity measures without clipping.
 * @returns the norm before clipping; 0 if no parameter has a gradient.
 * @throws UsageError unless maxNorm is a number ≥ 0.
 */
export function clipGradNorm_(
  parameters: Iterable<Tensor>,
  maxNorm: number,
  options: ClipGradNormOptions = {},
): number {
  if (typeof maxNorm !== "number" || !(maxNorm >= 0)) {
    throw new UsageError(
      "out-of-range",
      `clipGradNorm_ maxNorm: must be a number ≥ 0, got ${describeValue(maxNorm)}`,
    );
  }
  const gradients = [...parameters]
    .map((parameter) => parameter.grad)
    .filter((gradient) => gradient !== null);
  if (gradients.length === 0) return 0;
  return noGrad(() =>
    scope(() => {
      const norm = jointNorm(gradients);
      if (!Number.isFinite(norm)) {
        if (options.errorIfNonfinite === true) {
          throw new TorchError(`clipGradNorm_: the joint norm of ${gradients.length} gradients is ${norm}`);
        }
        return norm;
      }
      const factor = maxNorm / (norm + 1e-6);
      if (factor < 1) for (const gradient of gradients) gradient.mul_(factor);
      return norm;
    }),
  );
}

function jointNorm(gradients: readonly Tensor[]): number {
  const plain = gradients.filter(({ device, dtype }) => device === "cpu" && dtype === "float32");
  const others = gradients.filter((gradient) => !plain.includes(gradient));
  // In double precision: libtorch's float32 sum loses precision over tens of millions of elements.
  const plainNorm = addon().gradientNorm(plain.map((gradient) => gradient.handle));
  return others.length === 0 ? plainNorm : Math.hypot(plainNorm, generalNorm(others));
}

/**
 * Norm of norms, collected on one device so that there is a single synchronization; 16-bit gradients are computed in
 * float32.
 */
function generalNorm(gradients: readonly Tensor[]): number {
  const { device } = gradients[0]!;
  const norms = gradients.map((gradient) => {
    const wide = gradient.dtype === "float64" ? gradient : gradient.to("float32");
    return wide.norm(2).to({ device, dtype: "float64" });
  });
  return stack(norms).norm(2).item();
}
