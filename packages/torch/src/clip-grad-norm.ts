import { describeValue, TorchError, UsageError } from "./errors.js";
import { addon } from "./native.js";
import { stack } from "./operators.js";
import { noGrad, scope } from "./scope.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link clipGradNorm_}. */
export interface ClipGradNormOptions {
  /** Throw a TorchError when the norm is infinite or not a number. Default false: return it. */
  errorIfNonfinite?: boolean;
}

/**
 * Scales all gradients, in place and by one common factor, so that their joint norm is at most `maxNorm`.
 *
 * The norm is joint: the Euclidean norm of all gradients seen as one long vector, not one norm for each. The
 * factor is maxNorm / (norm + 1e-6), and gradients that are short enough already are left as they are.
 *
 * When the norm is infinite or not a number there is no factor that would repair the gradients; they are left
 * untouched (PyTorch would multiply them by 0 or NaN) and the norm is returned. The caller must check it and
 * leave the step out.
 *
 * @param maxNorm ≥ 0; Infinity measures without clipping.
 * @returns the norm before clipping; 0 when no parameter has a gradient.
 * @throws UsageError unless maxNorm is a number ≥ 0.
 */
export function clipGradNorm_(
  parameters: Iterable<Tensor>,
  maxNorm: number,
  options: ClipGradNormOptions = {},
): number {
  if (typeof maxNorm !== "number" || !(maxNorm >= 0)) {
    throw new UsageError(`clipGradNorm_ maxNorm: must be a number ≥ 0, got ${describeValue(maxNorm)}`);
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
  // In double precision: libtorch's float32 sum loses digits over tens of millions of elements.
  const plainNorm = addon().gradientNorm(plain.map((gradient) => gradient.handle));
  return others.length === 0 ? plainNorm : Math.hypot(plainNorm, generalNorm(others));
}

/** Norm of norms, brought together on one device so that there is one wait for it; 16-bit ones in float32. */
function generalNorm(gradients: readonly Tensor[]): number {
  const { device } = gradients[0]!;
  const norms = gradients.map((gradient) => {
    const wide = gradient.dtype === "float64" ? gradient : gradient.to("float32");
    return wide.norm(2).to({ device, dtype: "float64" });
  });
  return stack(norms).norm(2).item();
}
