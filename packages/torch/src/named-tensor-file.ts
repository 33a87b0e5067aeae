import { accessSync, constants, statSync } from "node:fs";
import { describeValue, TorchError, UsageError } from "@astra-rl/base";
import type { SafetensorsEntry } from "./safetensors/header.js";
import { openTensorFile, type TensorFile } from "./tensor-file.js";
import type { Tensor } from "./tensor.js";

/** An open file of named tensors. `close()` it after reading; tensors that were read stay valid. */
export abstract class NamedTensorFile {
  /** Every tensor in the file, in the file's order. */
  abstract readonly tensors: ReadonlyMap<string, SafetensorsEntry>;
  private closed = false;

  /** Takes ownership of `file`. */
  protected constructor(
    readonly path: string,
    private readonly file: TensorFile,
  ) {}

  /**
   * One tensor, on the CPU.
   * @throws UsageError if there is no tensor of that name, or the file has changed since it was opened
   */
  read(name: string): Tensor {
    if (this.closed) throw new TorchError(`${this.path}: it is closed already; read before close()`);
    if (!this.tensors.has(name)) {
      throw new UsageError("unknown-tensor", `${this.path}: there is no tensor ${describeValue(name)}`);
    }
    return readUnchanged(this.file, () => this.readFrom(this.file, name));
  }

  /** Reads a tensor known to exist, in row-major order. */
  protected abstract readFrom(file: TensorFile, name: string): Tensor;

  /** Closes the file. Tensors that were read stay valid. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Opens a file and passes it to `make`, whose result owns it; closes the file if `make` throws. */
export function openNamed<T extends NamedTensorFile>(path: string, make: (file: TensorFile) => T): T {
  const file = openRegularFile(path);
  try {
    return make(file);
  } catch (error) {
    file.close();
    throw error;
  }
}

/** @throws UsageError if it is missing, not a regular file, or unreadable */
function openRegularFile(path: string): TensorFile {
  try {
    if (!statSync(path).isFile()) throw new UsageError("not-a-file", `${path}: must be a file`);
    accessSync(path, constants.R_OK);
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    const { code, message } = cause as NodeJS.ErrnoException;
    throw code === "ENOENT"
      ? new UsageError("file-not-found", `${path}: there is no such file`, { cause })
      : new UsageError("file-unreadable", `${path}: cannot be read (${code ?? message})`, { cause });
  }
  return openTensorFile(path);
}

export function readBytes(file: TensorFile, position: number, length: number): Uint8Array {
  using bytes = readUnchanged(file, () => file.read("uint8", [length], position));
  return bytes.toTypedArray() as Uint8Array;
}

/** The result of `read`; throws a UsageError if the file was changed meanwhile. */
function readUnchanged(file: TensorFile, read: () => Tensor): Tensor {
  try {
    return read();
  } catch (cause) {
    if (!file.isChanged()) throw cause;
    throw new UsageError(
      "file-changed",
      `${file.path}: it was changed while it was being read; load it again when it is complete`,
      { cause },
    );
  }
}
