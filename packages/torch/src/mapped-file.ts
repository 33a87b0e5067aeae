/** Files as tensors, without reading them first. */
import { dtypeFacts, isDType, type DType } from "./dtype.js";
import { describeValue, TorchError } from "./errors.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import type { Tensor } from "./tensor.js";

/**
 * A file in memory, private and copy-on-write: tensors may be written to, the file never changes.
 * The mapping lives until it is closed and the last tensor over it is gone. Nobody may shorten the file meanwhile:
 * the system answers a read beyond the new end by ending the process.
 */
export class MappedFile {
  readonly path: string;
  readonly bytes: number;
  private handle: number;

  /** Throws TorchError when the path is no readable regular file. */
  constructor(path: string) {
    this.path = path;
    [this.handle, this.bytes] = addon().mapFile(path);
  }

  /**
   * The elements from `byteOffset` on. A view of the file; a copy where the offset is no multiple of the element's
   * size, and for bool. Throws when any byte lies outside of the file.
   */
  tensor(dtype: DType, shape: readonly number[], byteOffset: number): Tensor {
    if (!isDType(dtype)) {
      throw new TorchError(`mappedTensor: dtype must be a supported dtype, got ${describeValue(dtype)}`);
    }
    return wrap(addon().mappedTensor(this.handle, dtypeFacts[dtype].code, shape, byteOffset));
  }

  /** Tensors made before stay valid. */
  close(): void {
    if (this.handle === 0) return;
    addon().unmapFile(this.handle);
    this.handle = 0;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export function mapFile(path: string): MappedFile {
  return new MappedFile(path);
}
