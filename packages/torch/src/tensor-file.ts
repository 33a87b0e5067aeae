/** Files as tensors. */
import { dtypeFacts, isDType, type DType } from "./dtype.js";
import { describeValue, TorchError } from "./errors.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import type { Tensor } from "./tensor.js";

/**
 * An open file that tensors are read from. Each has memory of its own: the file may be changed, shortened or removed once
 * it has been read. A change before that, by size or time of modification, is an error rather than other numbers.
 */
export class TensorFile {
  readonly path: string;
  readonly bytes: number;
  private handle: number;

  /** Throws TorchError when the path is no readable regular file. */
  constructor(path: string) {
    this.path = path;
    [this.handle, this.bytes] = addon().openFile(path);
  }

  /**
   * A new tensor of the elements from `byteOffset` on.
   * @throws TorchError when any byte lies outside of the file, or the file has been changed since it was opened
   */
  read(dtype: DType, shape: readonly number[], byteOffset: number): Tensor {
    if (!isDType(dtype)) {
      throw new TorchError(`readFile: dtype must be a supported dtype, got ${describeValue(dtype)}`);
    }
    return wrap(addon().readFile(this.handle, dtypeFacts[dtype].code, shape, byteOffset));
  }

  /** Whether the file has another size or time of modification than when it was opened. */
  isChanged(): boolean {
    return addon().isFileChanged(this.handle);
  }

  close(): void {
    if (this.handle === 0) return;
    addon().closeFile(this.handle);
    this.handle = 0;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export function openTensorFile(path: string): TensorFile {
  return new TensorFile(path);
}
