import { TorchError } from "@astra-rl/base";
import { differentiable } from "../differentiable.js";
import { dtypeFacts } from "../dtype.js";
import { addon } from "../native.js";
import { requireTensor, wrap } from "../operator-call.js";
import type { Tensor } from "../tensor.js";
import { isLoopable } from "./applicability.js";

// GELU in its tanh form (Hendrycks & Gimpel 2016, arXiv 1606.08415, section 2):
//   x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))) = x · σ(b x + a x³), since 1 + tanh(z) = 2 σ(2z)
const B = 2 * Math.sqrt(2 / Math.PI);
const A = 0.044715 * B;

/**
 * `x.gelu({ approximate: "tanh" })` for any shape and floating-point type; several times faster on the CPU, where
 * libtorch's tanh was the largest cost of a transformer layer after the products. 16-bit types are computed in float32.
 *
 * @throws TorchError for integers and booleans, as PyTorch does
 */
export function geluTanh(x: Tensor): Tensor {
  if (dtypeFacts[requireTensor("geluTanh", "x", x).dtype].kind !== "float") {
    throw new TorchError(`geluTanh: x must be of a floating-point type, got ${x.dtype}`);
  }
  if (x.device !== "cpu") return x.gelu({ approximate: "tanh" });
  const isOnePass = isLoopable(x);
  return differentiable({
    name: "geluTanh",
    inputs: [x],
    forward: () => ({ output: isOnePass ? wrap(addon().geluTanh(x.handle, null)) : value(x), saved: [x] }),
    backward: (gradOutput, [saved]) => [
      isOnePass ? wrap(addon().geluTanh(saved!.handle, gradOutput.handle)) : derivative(saved!, gradOutput),
    ],
  });
}

/** x σ(u), computed in float64. */
function value(x: Tensor): Tensor {
  const wide = x.to("float64");
  return gate(wide).mul(wide).to(x.dtype);
}

/** d/dx x σ(u) = σ + x u′ σ (1 − σ), with u′ = b + 3 a x²; times the incoming gradient. */
function derivative(x: Tensor, gradient: Tensor): Tensor {
  const wide = x.to("float64");
  const sigmoid = gate(wide);
  const slope = wide
    .square()
    .mul(3 * A)
    .add(B)
    .mul(wide);
  return slope.mul(sigmoid.sub(sigmoid.square())).add(sigmoid).mul(gradient).to(x.dtype);
}

/** σ(u) with u = b x + a x³. */
function gate(x: Tensor): Tensor {
  return x.square().mul(A).add(B).mul(x).sigmoid();
}
