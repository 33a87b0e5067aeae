/** Norms over the last dimension whose result may have another dtype than the input. */
import { cast } from "../cast.js";
import { differentiable } from "../differentiable.js";
import type { DType } from "../dtype.js";
import { addon } from "../native.js";
import { requireTensor, wrap } from "../operator-call.js";
import { rmsNorm } from "../later-operators.js";
import { layerNorm } from "../operators.js";
import { isGradEnabled } from "../scope.js";
import type { Tensor } from "../tensor.js";
import { isLoopable, isBoundByCalls } from "./applicability.js";

export interface AutocastNormOptions {
  /** Added to the mean square before taking the square root. */
  epsilon: number;
  /** Type of the result. */
  dtype: DType;
}

/**
 * Layer norm, (x − mean) / √(variance + epsilon) · weight + bias over the last dimension (Ba et al. 2016, arXiv
 * 1607.06450), rounded once, to `dtype`. Differentiable; each gradient has its operand's type.
 *
 * Computed in float32, or float64 if the input is; parameters may have any type. On the CPU, one pass for results in
 * bfloat16.
 *
 * @param input [..., D]
 * @param weight [D]
 * @param bias [D]
 * @returns `dtype` [..., D]
 * @throws TorchError if the shapes do not match
 */
export function autocastLayerNorm(
  input: Tensor,
  weight: Tensor,
  bias: Tensor,
  options: AutocastNormOptions,
): Tensor {
  return norm("autocastLayerNorm", input, weight, bias, options);
}

/**
 * Root-mean-square norm, x / √(mean of x² + epsilon) · weight over the last dimension (Zhang & Sennrich 2019, arXiv
 * 1910.07467); otherwise like `autocastLayerNorm`, and also one pass for float32 results of float32 inputs.
 */
export function autocastRmsNorm(input: Tensor, weight: Tensor, options: AutocastNormOptions): Tensor {
  return norm("autocastRmsNorm", input, weight, null, options);
}

/** With a bias, a layer norm; without, an RMS norm. */
function norm(
  where: string,
  input: Tensor,
  weight: Tensor,
  bias: Tensor | null,
  { epsilon, dtype }: AutocastNormOptions,
): Tensor {
  requireTensor(where, "input", input);
  requireTensor(where, "weight", weight);
  if (bias !== null) requireTensor(where, "bias", bias);
  // libtorch computes layer norms in float32 in one pass itself.
  const isWide = dtype === "float32" && input.dtype === "float32" && bias === null;
  const isOnePass =
    (dtype === "bfloat16" || isWide) &&
    [input, weight, bias].every((each) => each === null || isLoopable(each));
  if (!isOnePass) return composed(input, weight, bias, { epsilon, dtype });

  const isCentred = bias !== null;
  const normed = (recording: boolean) =>
    addon().norm(input.handle, weight.handle, bias?.handle ?? null, isCentred, isWide, epsilon, recording);
  if (!isGradEnabled()) return wrap(normed(false)[0]);

  // The operands themselves may have been freed by the time of the backward pass.
  const inputs = [input, weight, bias];
  const wanted = inputs.map((operand) => operand?.requiresGrad === true);
  const dtypes = inputs.map((operand) => operand?.dtype);
  return differentiable({
    name: where,
    inputs,
    forward: () => {
      const [result, ...measures] = normed(wanted.includes(true)).map(wrap);
      return { output: result!, saved: [input, weight, ...measures] };
    },
    backward: (gradOutput, [savedInput, savedWeight, measures]) =>
      addon()
        .normBackward(savedInput!.handle, gradOutput.handle, savedWeight!.handle, measures!.handle, isCentred)
        .map(wrap)
        .map((gradient, at) => (wanted[at] ? cast(gradient, dtypes[at]!) : null)),
  });
}

function composed(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | null,
  { epsilon, dtype }: AutocastNormOptions,
): Tensor {
  const inside = input.dtype === "float64" ? "float64" : "float32";
  const wide = cast(input, inside);
  const factor = cast(weight, inside);
  if (bias !== null) {
    return cast(layerNorm(wide, [input.size(-1)], factor, cast(bias, inside), epsilon), dtype);
  }
  // The gradients of the composition are the tested ones.
  const fused = isBoundByCalls(input.device) && !isGradEnabled() ? rmsNorm(wide, factor, epsilon) : null;
  if (fused !== null) return cast(fused, dtype);
  const scale = wide.square().mean([-1], true).add(epsilon).rsqrt();
  return cast(wide.mul(scale).mul(factor), dtype);
}
