/** The product of a layer in 16 bits, of master weights or of weights in 16 bits. */
import { cast } from "./cast.js";
import { differentiable } from "./differentiable.js";
import type { DType } from "./dtype.js";
import { describeValue, TorchError } from "./errors.js";
import { addon } from "./native.js";
import { requireTensor, wrap } from "./operator-call.js";
import { linear } from "./operators.js";
import { isGradEnabled } from "./scope.js";
import type { Tensor } from "./tensor.js";

export interface AutocastLinearOptions {
  /** Type that the numbers multiplied are rounded to. */
  dtype: DType;
  /** Type of the result: `dtype`, or float32, which keeps the sums as they are. Default: `dtype`. */
  resultDtype?: DType;
  /** The weight is stored [in, out]. Default: false. */
  transposed?: boolean;
  /** [..., out], of the result's type: added to the result. */
  residual?: Tensor | null;
}

/**
 * input · weightᵀ + bias (+ residual) with products in `dtype`, whatever types the operands are stored in: what
 * `torch.nn.functional.linear` is under `torch.autocast(dtype=…)`. Differentiable; each gradient has its operand's type,
 * and that of a float32 weight is never rounded to 16 bits.
 *
 * In bfloat16 on the CPU, sums are in float32, and what is added to them is added before they are rounded. Where the
 * processor multiplies tiles (Intel AMX) operands are read as they are stored: master weights are not copied. A row's
 * result then depends neither on the rows beside it nor on their number. At most 64 rows without gradients read the weight
 * once, as it lies: bfloat16 laid out by output (on tiles with an inner size that is a multiple of 32), or float32.
 *
 * @param input [..., in]
 * @param weight [out, in], or [in, out] where `transposed`
 * @param bias [out]
 * @returns [..., out]; in large results each row may begin at a cache line, with room between the rows
 * @throws TorchError where the shapes do not fit
 */
export function autocastLinear(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | null,
  { dtype, resultDtype = dtype, transposed = false, residual = null }: AutocastLinearOptions,
): Tensor {
  const where = "autocastLinear";
  requireTensor(where, "input", input);
  requireTensor(where, "weight", weight);
  if (bias !== null) requireTensor(where, "bias", bias);
  if (residual !== null) requireTensor(where, "residual", residual);
  if (resultDtype !== dtype && resultDtype !== "float32") {
    throw new TorchError(
      `${where}: resultDtype must be ${dtype} or float32, got ${describeValue(resultDtype)}`,
    );
  }
  if (dtype !== "bfloat16" || input.device !== "cpu") {
    const few =
      dtype === "float32" ? floatLinear(cast(input, dtype), weight, bias, transposed, residual) : null;
    if (few !== null) return few;
    const matrix = cast(transposed ? weight.t() : weight, dtype);
    const result = cast(linear(cast(input, dtype), matrix, bias && cast(bias, dtype)), resultDtype);
    return residual === null ? result : residual.add(result);
  }
  // What is added to a result that is rounded is added afterwards.
  if (residual !== null && resultDtype !== "float32") {
    return residual.add(autocastLinear(input, weight, bias, { dtype, resultDtype, transposed }));
  }
  const multiply = (rows: Tensor) =>
    wrap(
      addon().bfloat16Linear(
        rows.handle,
        weight.handle,
        transposed,
        bias?.handle ?? null,
        resultDtype === "float32",
        residual?.handle ?? null,
      ),
    );
  if (!isGradEnabled()) return multiply(input);
  const inputDtype = input.dtype;
  return withGradients([input, weight, bias, residual], transposed, {
    // The operand itself may be gone by the time of the backward pass.
    forward: () => {
      const rows = cast(input, dtype);
      return { output: multiply(rows), rows };
    },
    ofRows: (gradient, matrix) =>
      wrap(addon().bfloat16Product(gradient.handle, matrix.handle, inputDtype !== dtype)),
    ofMatrix: (gradient, rows, matrix) =>
      wrap(addon().bfloat16WeightGradient(gradient.handle, rows.handle, matrix.handle)),
    ofBias: (gradient) => wrap(addon().sumOfRows(gradient.handle)),
  });
}

/** Of few float32 rows on the CPU, with gradients the same numbers as without; null elsewhere. */
function floatLinear(
  input: Tensor,
  weight: Tensor,
  bias: Tensor | null,
  transposed: boolean,
  residual: Tensor | null,
): Tensor | null {
  if (input.device !== "cpu") return null;
  const result = addon().floatLinear(
    input.handle,
    weight.handle,
    transposed,
    bias?.handle ?? null,
    true,
    residual?.handle ?? null,
  );
  if (result === null) return null;
  const output = wrap(result);
  return withGradients([input, weight, bias, residual], transposed, {
    forward: () => ({ output, rows: input }),
    ofRows: (gradient, matrix) => gradient.matmul(matrix),
    ofMatrix: (gradient, rows) => (transposed ? rows.t().matmul(gradient).t() : gradient.t().matmul(rows)),
    ofBias: (gradient) => gradient.sum(0),
  });
}

/** A linear layer's forward pass, and the products that its gradients are. */
interface LinearProducts {
  /** The output, and the input [..., in] as it was multiplied. */
  forward: () => { output: Tensor; rows: Tensor };
  /** gradient [n, out] · matrix [out, in] */
  ofRows: (gradient: Tensor, matrix: Tensor) => Tensor;
  /** gradientᵀ [out, n] · rows [n, in], laid out as the weight is, so that it becomes its gradient without a copy */
  ofMatrix: (gradient: Tensor, rows: Tensor, matrix: Tensor) => Tensor;
  /** The sum of the gradient's rows: [out]. */
  ofBias: (gradient: Tensor) => Tensor;
}

function withGradients(
  operands: readonly [input: Tensor, weight: Tensor, bias: Tensor | null, residual: Tensor | null],
  transposed: boolean,
  { forward, ofRows, ofMatrix, ofBias }: LinearProducts,
): Tensor {
  const [input, weight, bias] = operands;
  // The operands themselves may be gone by the time of the backward pass.
  const { shape: inputShape, dtype: inputDtype } = input;
  const [wantsInput, wantsWeight, wantsBias] = [input, weight, bias].map(
    (operand) => operand?.requiresGrad === true,
  );
  const biasDtype = bias?.dtype;
  return differentiable({
    name: "autocastLinear",
    inputs: operands,
    forward: () => {
      const { output, rows } = forward();
      return { output, saved: [rows, weight] };
    },
    backward: (gradOutput, [savedRows, savedWeight]) => {
      const matrix = transposed ? savedWeight!.t() : savedWeight!; // [out, in]
      const [outputSize, inputSize] = matrix.shape as [number, number];
      const gradient = gradOutput.reshape([-1, outputSize]);
      const rows = savedRows!.reshape([-1, inputSize]);
      const weightGradient = () => {
        const made = cast(ofMatrix(gradient, rows, matrix), matrix.dtype);
        return transposed ? made.t() : made;
      };
      return [
        wantsInput ? cast(ofRows(gradient, matrix), inputDtype).view(inputShape) : null,
        wantsWeight ? weightGradient() : null,
        wantsBias ? cast(ofBias(gradient), biasDtype!) : null,
        gradOutput,
      ];
    },
  });
}

/**
 * `target.copy_(source)` without gradients: new values for a weight of a copy that decodes. It is many times faster from
 * float32 into a bfloat16 matrix that is laid out by column, which is how `autocastLinear` reads a weight
 * stored [in, out] when it decodes.
 *
 * @throws TorchError where `source` cannot be broadcast to the shape of `target`
 */
export function copyWeight(target: Tensor, source: Tensor): void {
  addon().copyWeight(
    requireTensor("copyWeight", "target", target).handle,
    requireTensor("copyWeight", "source", source).handle,
  );
}
