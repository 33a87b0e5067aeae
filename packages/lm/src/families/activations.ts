import { geluTanh, swiglu, type Tensor } from "@astra-rl/torch";
import type { JsonFields } from "../json-fields.js";

/** By Hugging Face's name. */
const activations: Readonly<Record<string, (hidden: Tensor) => Tensor>> = {
  gelu_new: geluTanh,
  gelu_fast: geluTanh,
  gelu_pytorch_tanh: geluTanh,
  gelu: (hidden) => hidden.gelu(),
  relu: (hidden) => hidden.relu(),
  silu: (hidden) => hidden.silu(),
};

/** The name of a supported activation in a field of config.json. */
export function activationOf(fields: JsonFields, key: string, fallback: string): string {
  const name = fields.string(key, { fallback });
  if (Object.hasOwn(activations, name)) return name;
  throw fields.error(
    "unsupported-activation",
    key,
    `one of those supported (${Object.keys(activations).join(", ")})`,
  );
}

export function activate(name: string, hidden: Tensor): Tensor {
  return activations[name]!(hidden);
}

/** The gate of a gated linear unit, activation(gate) · up (Shazeer 2020, arXiv 2002.05202). */
export function gated(name: string, gate: Tensor, up: Tensor): Tensor {
  return name === "silu" ? swiglu(gate, up) : activate(name, gate).mul(up);
}
