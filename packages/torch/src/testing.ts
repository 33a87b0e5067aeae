/**
 * Helpers for tests.
 *
 * @module @astra-rl/torch/testing
 */
import { grad } from "./autograd.js";
import { tensor } from "./factories.js";
import { addon, type NativeAddon } from "./native.js";
import { TorchError } from "./errors.js";
import { operatorNames } from "./operator-names.generated.js";
import { noGrad, scope } from "./scope.js";
import type { Device } from "./dtype.js";
import type { Tensor } from "./tensor.js";

export interface CheckGradientOptions {
  /** Half the distance of the two points of each central difference. Default: 1e-5. */
  epsilon?: number;
  /** Greatest difference allowed, relative to the larger side and at least absolute. Default: 1e-6. */
  tolerance?: number;
  /** How many random projections are compared. Default: 3. */
  projections?: number;
  /** Seed of the projections. Default: 1. */
  seed?: number;
}

/** A small generator of its own, so that checks do not disturb the streams under test. Values in (-1, 1). */
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
 * Compares autograd with central differences in float64, along random directions: for the Jacobian J of `fn` and
 * random u, v it checks ⟨u, Jv⟩ = ⟨Jᵀu, v⟩. `inputs` must be float64; all of them are differentiated.
 * `fn` must be smooth at the inputs. Throws an Error that gives both sides where they differ.
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

/** What takes tensors wherever they are, or none. All else are operators, or kernels of the CPU's own. */
const PLACELESS: ReadonlySet<string> = new Set<keyof NativeAddon>([
  "describe",
  "release",
  "releaseAll",
  "sharesStorage",
  "requiresGrad",
  "isLeaf",
  "version",
  "setRequiresGrad",
  "gradient",
  "setGradient",
  "attachFunction",
  "deliverGradients",
  "backward",
  "gradients",
  "releaseGenerator",
  "generatorState",
  "setGeneratorState",
  "readFile",
  "isFileChanged",
  "closeFile",
  // These look themselves where tensors lie, and leave what is not on the CPU to libtorch, or to their caller.
  "fusedAttention",
  "copyColumns",
  "decodeAttention",
  "copyWeight",
]);

/**
 * From here on, for the rest of the process, operators run on libtorch's "meta" device, whose tensors have shapes, types and a
 * device but no numbers. As on a GPU, a tensor of the CPU beside such tensors is an error, unless it is one number, and so is a
 * kernel of the CPU's own.
 *
 * @returns the device
 */
export function metaDevice(): Device {
  const native = addon() as unknown as Record<string, (...values: unknown[]) => unknown>;
  addon().computeOnMeta();
  for (const [name, run] of Object.entries(native)) {
    if (typeof run !== "function" || PLACELESS.has(name)) continue;
    native[name] = (...values) => {
      const { onMeta, elsewhere } = places(name === "call" ? values.slice(2) : values);
      if (onMeta && name !== "call") throw new TorchError(`${name}: takes tensors of the CPU only`);
      // Copies go from anywhere to anywhere.
      if (onMeta && elsewhere && !/^aten::(to|_to_copy|copy_)/u.test(operatorNames[Number(values[0])]!)) {
        throw new TorchError(
          `${operatorNames[Number(values[0])]}: a tensor of the CPU beside tensors on meta`,
        );
      }
      return run(...values);
    };
  }
  return "meta" as Device;
}

/** Whether some tensors of a call are on meta, and some, of more than one number, are not. */
function places(values: readonly unknown[]): { onMeta: boolean; elsewhere: boolean } {
  const found = { onMeta: false, elsewhere: false };
  for (const value of values.flat()) {
    // Numbers that stand for tensors are larger than any other that operators are given.
    if (typeof value !== "number" || !Number.isInteger(value) || value < 2 ** 32) continue;
    const [, device, ...sizes] = addon().describe(value);
    if (device === "meta") found.onMeta = true;
    else if (sizes.length > 0) found.elsewhere = true;
  }
  return found;
}
