/** Reads tensors from files. */
import { closeSync, constants, fstatSync, openSync, type BigIntStats } from "node:fs";
import { getSystemErrorMap } from "node:util";
import { describeValue, TorchError } from "@astra-rl/base";
import { dtypeFacts, isDType, type DType } from "./dtype.js";
import { addon } from "./native.js";
import { wrap } from "./operator-call.js";
import type { Tensor } from "./tensor.js";

/**
 * An open file that tensors are read from. Each tensor has its own memory: the file may be changed, truncated or
 * removed after reading. A change of size or modification time before reading is an error, so that no wrong values are
 * read.
 */
export class TensorFile {
  readonly path: string;
  readonly bytes: number;
  /** −1 after closing. */
  private descriptor: number;
  private readonly opened: BigIntStats;

  /** Throws TorchError if the path is not a readable regular file. */
  constructor(path: string) {
    this.path = path;
    if (typeof path !== "string")
      throw new TorchError(`openFile: path must be a string, got ${describeValue(path)}`);
    if (path.includes("\0")) throw new TorchError("openFile: the path must not hold a zero byte");
    try {
      // Non-blocking, so that opening a named pipe does not wait; it is refused below.
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
   * Reads a new tensor from the bytes at `byteOffset`.
   * @throws TorchError if the range exceeds the file, or the file has changed since it was opened
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

  /** Whether the file's size or modification time has changed since it was opened. */
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
