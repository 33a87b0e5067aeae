import { UsageError } from "@astra-rl/base";
import { bytesOf } from "../dtype.js";
import { NamedTensorFile, openNamed, readBytes } from "../named-tensor-file.js";
import { explainForeignFormat } from "../safetensors/foreign-format.js";
import type { SafetensorsEntry } from "../safetensors/header.js";
import { scope } from "../scope.js";
import type { TensorFile } from "../tensor-file.js";
import type { Tensor } from "../tensor.js";
import { readContents, type Contents, type StoredTensor } from "./contents.js";

/**
 * Opens a `torch.save` file of a state_dict, a dictionary of tensors, and validates everything but the tensor data.
 *
 * Nothing in the file is executed: its pickle is read as data, and refused if it contains anything but tensors. As with
 * safetensors, each tensor is read on request.
 *
 * @throws UsageError, naming the file and the rule, if it is missing, damaged, or not a state_dict
 */
export function openStateDict(path: string): StateDictFile {
  return openNamed(path, (file) => new StateDictFile(path, contentsOf(file), file));
}

/** An open file of a state_dict. */
export class StateDictFile extends NamedTensorFile {
  /** In the order of the dictionary. */
  readonly tensors: ReadonlyMap<string, SafetensorsEntry>;

  /** Use {@link openStateDict}; takes ownership of `file`. */
  constructor(
    path: string,
    private readonly contents: Contents,
    file: TensorFile,
  ) {
    super(path, file);
    const entryOf = ({ dtype, shape }: StoredTensor): SafetensorsEntry => {
      return { dtype, shape, nbytes: elementsOf(shape) * bytesOf(dtype) };
    };
    this.tensors = new Map([...contents].map(([name, stored]) => [name, entryOf(stored)]));
  }

  protected readFrom(file: TensorFile, name: string): Tensor {
    const { dtype, shape, start, order } = this.contents.get(name)!;
    if (order === null) return file.read(dtype, shape, start);
    // Reads dimensions in order of descending stride, then permutes them back.
    return scope(() => {
      const lying = order.map((dimension) => shape[dimension]!);
      const back = shape.map((_, dimension) => order.indexOf(dimension));
      return file.read(dtype, lying, start).permute(back).contiguous();
    });
  }
}

const elementsOf = (shape: readonly number[]) => shape.reduce((product, size) => product * size, 1);

function contentsOf(file: TensorFile): Contents {
  const fail = (rule: string, why: string) =>
    new UsageError(rule, `${file.path}: cannot be read as a state_dict of PyTorch: ${why}`);
  const start = readBytes(file, 0, Math.min(file.bytes, 64));
  const isZip = start[0] === 0x50 && start[1] === 0x4b;
  if (!isZip && start[0] !== 0x80) {
    const foreign = explainForeignFormat(start);
    throw foreign === null
      ? fail("not-a-state-dict", "it is neither a zip archive nor a pickle")
      : new UsageError("foreign-format", `${file.path}: ${foreign}`);
  }
  const bytes = {
    length: file.bytes,
    read: (from: number, length: number) => {
      const { buffer, byteOffset } = readBytes(file, from, length);
      return new DataView(buffer, byteOffset, length);
    },
  };
  return readContents(bytes, isZip, fail);
}
