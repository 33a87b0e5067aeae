import { dispose, keep, noGrad, scope, type Device, type DType, type Tensor } from "@astra-rl/torch";
import { UsageError } from "@astra-rl/base";
import type { JsonFields } from "./json-fields.js";
import type { WeightFiles } from "./weight-files.js";

/** Supported stored types of parameters. */
const STORED_AS_FLOAT: readonly string[] = ["float32", "float16", "bfloat16", "float64"];

/** Interface for reading all kinds of model families. */
export interface Family<C, M> {
  /** Key of the number of layers in the configuration. */
  readonly layersKey: string;
  parseConfig(fields: JsonFields): C;
  /** The configuration, completed by the stored weights. */
  settled?(config: C, stored: WeightFiles): C;
  /** Name and shape of every parameter; called only after the number of layers was checked against the files. */
  parameterShapes(config: C): ReadonlyMap<string, readonly number[]>;
  /** The parameter that a key maps to; null for keys to skip. */
  parameterName(key: string, config: C): string | null;
  /** Creates a model from the parameters, which it then owns. */
  create(config: C, parameters: Map<string, Tensor>, computeDtype: DType): M;
}

/**
 * Reads a model's parameters, after checking that each is present with the right shape.
 *
 * @param place path of the configuration, for messages
 * @returns the parameters in the order of `parameterShapes`, owned by the caller, and the unused keys
 * @throws UsageError naming the file, the tensor, the rule and the value found
 */
export function readParameters<C extends { readonly layers: number }>(
  files: WeightFiles,
  family: Family<C, unknown>,
  config: C,
  place: string,
  options: { dtype: DType; device: Device },
): { parameters: Map<string, Tensor>; unusedTensors: string[] } {
  const { layers } = config;
  const parameterName = (key: string) => family.parameterName(key, config);
  checkLayers([...files.keys()], parameterName, layers, `${place}: "${family.layersKey}"`);
  const shapes = family.parameterShapes(config);
  const found = new Map<string, string>();
  const unusedTensors: string[] = [];
  for (const key of files.keys()) {
    const name = parameterName(key);
    if (name === null) continue;
    const described = files.describe(key);
    const { path } = described;
    const expected = shapes.get(name);
    if (expected === undefined) {
      const layer = layerOf(name);
      if (layer !== null && layer >= layers) {
        throw new UsageError(
          "layer-count-mismatch",
          `${path}: the number of layers must be that of ${place} (${layers}), but there is a tensor ${key}`,
        );
      }
      unusedTensors.push(key);
      continue;
    }
    const twin = found.get(name);
    if (twin !== undefined)
      throw new UsageError("duplicate-parameter", `${path}: ${twin} and ${key} are the same parameter`);
    found.set(name, key);
    checkStored(path, key, described, expected, `according to ${place}`);
  }
  const missing = [...shapes.keys()].filter((name) => !found.has(name));
  if (missing.length > 0) {
    const shown = missing.slice(0, 3).join(", ") + (missing.length > 3 ? ", …" : "");
    const [first] = files.keys();
    const where = first === undefined ? "the weights" : files.describe(first).path;
    throw new UsageError(
      "missing-tensor",
      `${where}: must hold the ${shapes.size} tensors that ${place} asks for, but ${missing.length} are missing: ${shown}`,
    );
  }

  const parameters = new Map<string, Tensor>();
  try {
    for (const name of shapes.keys()) {
      const tensor = noGrad(() =>
        scope(() => {
          const key = found.get(name)!;
          return finite(files.read(key), files.describe(key).path, key, options);
        }),
      );
      parameters.set(name, keep(tensor));
    }
  } catch (error) {
    dispose(parameters);
    throw error;
  }
  return { parameters, unusedTensors };
}

/**
 * Each layer has its own tensors, so a number of layers above the number of tensors is refused before parameter names
 * are generated: a huge number in config.json must not use time or memory.
 */
function checkLayers(
  keys: readonly string[],
  parameterName: (key: string) => string | null,
  layers: number,
  where: string,
): void {
  if (layers <= keys.length) return;
  const found = new Set(
    keys.map((key) => layerOf(parameterName(key) ?? "")).filter((layer) => layer !== null),
  );
  throw new UsageError(
    "layer-count-mismatch",
    `${where} must be the number of layers whose tensors are there (${found.size}), but it is ${layers}`,
  );
}

function layerOf(name: string): number | null {
  const digits = /\b(?:h|layers?)\.(\d+)\./.exec(name)?.[1];
  return digits === undefined ? null : Number(digits);
}

/**
 * Checks how a tensor is stored.
 *
 * @param entry undefined if the file has no such tensor
 * @param because what determines the shape, for the message
 * @throws UsageError naming the file and the tensor
 */
export function checkStored(
  path: string,
  key: string,
  entry: { dtype: string; shape: readonly number[] } | undefined,
  shape: readonly number[],
  because: string,
): void {
  if (entry === undefined) throw new UsageError("missing-tensor", `${path}: tensor ${key} is missing`);
  if (!STORED_AS_FLOAT.includes(entry.dtype)) {
    throw new UsageError(
      "unsupported-dtype",
      `${path}: tensor ${key} must be stored as one of ${STORED_AS_FLOAT.join(", ")}, but it is ${entry.dtype}`,
    );
  }
  if (entry.shape.join() === shape.join()) return;
  throw new UsageError(
    "shape-mismatch",
    `${path}: tensor ${key} must have shape [${shape.join(", ")}] ${because}, but it has [${entry.shape.join(", ")}]`,
  );
}

/**
 * A tensor that was read, in another type and on another device. Refuses infinite and NaN weights, with which a model
 * generates only nonsense.
 *
 * @throws UsageError naming the file and the tensor
 */
export function finite(
  stored: Tensor,
  path: string,
  key: string,
  { dtype, device }: { dtype: DType; device: Device },
): Tensor {
  const tensor = stored.dtype === dtype && stored.device === device ? stored : stored.to({ dtype, device });
  if (tensor.numel() === 0) return tensor;
  // One pass without a copy; min and max are NaN if any element is.
  const extremes = noGrad(() =>
    scope(() => {
      // libtorch 1.13 supports this for all types but float16.
      const comparable = tensor.dtype === "float16" ? tensor.to("float32") : tensor;
      return comparable.aminmax().map((extreme) => extreme.item());
    }),
  );
  if (extremes.every(Number.isFinite)) return tensor;
  throw new UsageError(
    "not-finite",
    `${path}: tensor ${key} must hold finite numbers, but some are infinite or NaN; the file is damaged, or the training ` +
      `that wrote it had diverged`,
  );
}
