import { UsageError } from "@astra-rl/base";
import { NamedTensorFile, openNamed, readBytes } from "../named-tensor-file.js";
import type { Tensor } from "../tensor.js";
import type { TensorFile } from "../tensor-file.js";
import { explainForeignFormat } from "./foreign-format.js";
import { lengthBytes, parseHeader, readHeaderLength, type Header, type SafetensorsEntry } from "./header.js";

/**
 * Opens a safetensors file and validates its header; no data is read yet.
 *
 * Each tensor is read on request into its own memory: later changes to the file do not affect it, and writing to it
 * never changes the file. A file that changes between opening and reading is refused.
 *
 * @throws UsageError, naming the file and the rule, if it is missing, not safetensors, truncated or corrupt; pickled
 * weights are refused with the way to convert them.
 */
export function openSafetensors(path: string): SafetensorsFile {
  return openNamed(path, (file) => new SafetensorsFile(path, readHeader(file), file));
}

/** An open safetensors file. */
export class SafetensorsFile extends NamedTensorFile {
  /** The strings in `__metadata__`. */
  readonly metadata: ReadonlyMap<string, string>;
  /** In the order of the header. */
  readonly tensors: ReadonlyMap<string, SafetensorsEntry>;
  private readonly entries: Header["entries"];

  /** Use {@link openSafetensors}; takes ownership of `file`. */
  constructor(path: string, header: Header, file: TensorFile) {
    super(path, file);
    this.metadata = header.metadata;
    this.tensors = header.entries;
    this.entries = header.entries;
  }

  protected readFrom(file: TensorFile, name: string): Tensor {
    const { dtype, shape, start } = this.entries.get(name)!;
    return file.read(dtype, shape, start);
  }
}

function readHeader(file: TensorFile): Header {
  const start = readBytes(file, 0, Math.min(file.bytes, 64));
  try {
    const length = readHeaderLength(start, file.bytes, file.path);
    return parseHeader(readBytes(file, lengthBytes, length), file.bytes, file.path);
  } catch (error) {
    const explanation = error instanceof UsageError ? explainForeignFormat(start) : null;
    if (explanation !== null)
      throw new UsageError("foreign-format", `${file.path}: ${explanation}`, { cause: error });
    throw error;
  }
}
