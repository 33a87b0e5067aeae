/** The product of a layer in 16 bits, of master weights or of weights in 16 bits. */
import { cast } from "../cast.js";
import { differentiable } from "../differentiable.js";
import type { DType } from "../dtype.js";
import { describeValue, TorchError } from "../errors.js";
import { addon } from "../native.js";
import { requireTensor, wrap } from "../operator-call.js";
import { linear } from "../operators.js";
import { empty, ones, zeros } from "../factories.js";
import { isGradEnabled, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";

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
 * processor multiplies tiles (Intel AMX) or pairs (AVX512-BF16) of such numbers, operands are read as they are stored: master
 * weights are not copied. Few rows read the weight once, as it lies, where it is laid out by output: at most 192 on tiles (with an
 * inner size that is a multiple of 32), 128 of pairs or float32, any number of bfloat16 rows that have to be widened. Among so
 * many a row's result does not depend on the others; on tiles, among any number.
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
  // Asked of the weight, which has said so before; an input that lies elsewhere is refused either way.
  if (dtype !== "bfloat16" || weight.device !== "cpu") {
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
  const multiply = (rows: Tensor) => {
    const result = addon().bfloat16Linear(
      rows.handle,
      weight.handle,
      transposed,
      bias?.handle ?? null,
      resultDtype === "float32",
      residual?.handle ?? null,
    );
    if (result !== null) return wrap(result);
    const matrix = transposed ? weight : weight.t(); // [in, out]
    const [inner, outputs] = matrix.shape as [number, number];
    const leading = rows.shape.slice(0, -1);
    const count = leading.reduce((product, size) => product * size, 1);
    return plainProduct(rows.reshape([count, inner]), matrix, resultDtype, {
      bias,
      residual,
      shape: [...leading, outputs],
    });
  };
  if (!isGradEnabled()) return multiply(input);
  const inputDtype = input.dtype;
  return withGradients([input, weight, bias, residual], transposed, {
    // The operand itself may be gone by the time of the backward pass.
    forward: () => {
      const rows = cast(input, dtype);
      return { output: multiply(rows), rows };
    },
    ofRows: (gradient, matrix) => {
      const result = addon().bfloat16Product(gradient.handle, matrix.handle, inputDtype !== dtype);
      return result === null ? plainProduct(gradient, matrix, inputDtype) : wrap(result);
    },
    ofMatrix: (gradient, rows, matrix) => {
      const result = addon().bfloat16WeightGradient(gradient.handle, rows.handle, matrix.handle);
      return result === null ? plainProduct(gradient.t(), rows, matrix.dtype) : wrap(result);
    },
    ofBias: (gradient) =>
      (gradient.dtype === dtype ? columnSums(gradient) : null) ?? gradient.sum([0], { dtype: "float32" }),
  });
}

/** [n, out] → float32 [out], as a product with ones: quicker than libtorch's sum. Null where there is no such product. */
function columnSums(gradient: Tensor): Tensor | null {
  const rows = ones([1, gradient.size(0)], { dtype: gradient.dtype });
  const sums = addon().bfloat16Product(rows.handle, gradient.handle, true);
  return sums === null ? null : wrap(sums).view([-1]);
}

/** Numbers that are widened together: 4 MiB. */
const PIECE = 2 ** 20;

/**
 * left [m, k] · right [k, n] + bias [n] + residual, of numbers that are rounded to bfloat16, with sums in float32: what the
 * kernels compute. Such numbers have exact products in float32, so that the BLAS may multiply them; they are widened piece by
 * piece along the longest of m, n and k.
 *
 * @returns [m, n] or `shape`; a tensor of its own, since no view could become a function's output
 */
function plainProduct(
  left: Tensor,
  right: Tensor,
  dtype: DType,
  options: { bias?: Tensor | null; residual?: Tensor | null; shape?: readonly number[] } = {},
): Tensor {
  return noGrad(() =>
    scope(() => {
      const [a, b] = [laidOut(left), laidOut(right)];
      const [m, k, n] = [a.size(0), a.size(1), b.size(1)];
      const { bias = null, residual = null, shape = [m, n] } = options;
      const result = empty(shape, { dtype });
      const [matrix, added] = [result.view([m, n]), residual?.reshape([m, n])];
      const pieces = (length: number, width: number, work: (from: number, count: number) => void) => {
        const most = Math.max(1, Math.floor(PIECE / Math.max(1, width)));
        for (let from = 0; from < length; from += most) {
          scope(() => work(from, Math.min(most, length - from)));
        }
      };
      const put = (at: 0 | 1, from: number, sums: Tensor) => {
        const count = sums.size(at);
        const cut = (whole: Tensor) => whole.narrow(at, from, count);
        if (bias !== null) sums.add_(at === 1 ? bias.narrow(0, from, count) : bias);
        if (added !== undefined) sums.add_(cut(added));
        cut(matrix).copy_(sums);
      };
      if (k >= m && k >= n) {
        const sums = zeros([m, n]);
        pieces(k, Math.max(m, n), (from, count) => {
          sums.addmm_(rounded(a.narrow(1, from, count)), rounded(b.narrow(0, from, count)));
        });
        put(0, 0, sums);
      } else if (n >= m) {
        const whole = rounded(a);
        pieces(n, k, (from, count) => put(1, from, whole.matmul(rounded(b.narrow(1, from, count)))));
      } else {
        const whole = rounded(b);
        pieces(m, k, (from, count) => put(0, from, rounded(a.narrow(0, from, count)).matmul(whole)));
      }
      return result;
    }),
  );
}

const rounded = (matrix: Tensor) => cast(cast(matrix, "bfloat16"), "float32");

/** A view that repeats its memory could claim any size: laid out, what no memory could hold is refused. */
const laidOut = (matrix: Tensor) => (addon().isDense(matrix.handle) ? matrix : matrix.contiguous());

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
  if (!isGradEnabled()) return output;
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
