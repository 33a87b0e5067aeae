/** Files as tensors. */
import { closeSync, constants, fstatSync, openSync, type BigIntStats } from "node:fs";
import { getSystemErrorMap } from "node:util";

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
  /** −1 once it is closed. */
  private descriptor: number;
  private readonly opened: BigIntStats;

  /** Throws TorchError when the path is no readable regular file. */
  constructor(path: string) {
    this.path = path;
    if (typeof path !== "string")
      throw new TorchError(`openFile: path must be a string, got ${describeValue(path)}`);
    if (path.includes("\0")) throw new TorchError("openFile: the path must not hold a zero byte");
    try {
      // A named pipe is not waited for: it is refused below.
      this.descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (cause) {
      const { errno, message } = cause as NodeJS.ErrnoException;
      const reason = getSystemErrorMap().get(errno ?? 0)?.[1] ?? message;
      throw new TorchError(`openFile: ${path} cannot be opened: ${reason}`, { cause });
    }
    this.opened = fstatSync(this.descriptor, { bigint: true });
    this.bytes = Number(this.opened.size);
    if (this.opened.isFile()) return;
    this.close();
    throw new TorchError(`openFile: ${path} is not a regular file`);
  }

  /**
   * A new tensor of the elements from `byteOffset` on.
   * @throws TorchError when any byte lies outside of the file, or the file has been changed since it was opened
   */
  read(dtype: DType, shape: readonly number[], byteOffset: number): Tensor {
    if (!isDType(dtype)) {
      throw new TorchError(`readFile: dtype must be a supported dtype, got ${describeValue(dtype)}`);
    }
    const read = wrap(addon().readFile(this.requireOpen(), dtypeFacts[dtype].code, shape, byteOffset));
    if (!this.isChanged()) return read;
    read.dispose();
    throw new TorchError(`readFile: ${this.path} has been changed since it was opened`);
  }

  /** Whether the file has another size or time of modification than when it was opened. */
  isChanged(): boolean {
    const now = fstatSync(this.requireOpen(), { bigint: true });
    return now.size !== this.opened.size || now.mtimeNs !== this.opened.mtimeNs;
  }

  private requireOpen(): number {
    if (this.descriptor < 0) throw new TorchError("readFile: the file has been closed");
    return this.descriptor;
  }

  close(): void {
    if (this.descriptor >= 0) closeSync(this.descriptor);
    this.descriptor = -1;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export function openTensorFile(path: string): TensorFile {
  return new TensorFile(path);
}
