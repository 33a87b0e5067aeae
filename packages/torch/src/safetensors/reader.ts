import { closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";
import { describeValue, TorchError, UsageError } from "../errors.js";
import { mapFile, type MappedFile } from "../mapped-file.js";
import type { Tensor } from "../tensor.js";
import { explainForeignFormat } from "./foreign-format.js";
import { lengthBytes, parseHeader, readHeaderLength, type Header, type SafetensorsEntry } from "./header.js";

/**
 * Opens a safetensors file and checks its whole header; no data is read yet.
 *
 * The data is memory-mapped, privately: pages are read when they are touched, and writing to a tensor changes
 * the tensor alone, never the file. The file must not be shortened while its tensors are alive (replacing it by
 * a rename, as `writeSafetensors` does, is fine).
 *
 * @throws UsageError, naming the file and the rule, when it is missing, not safetensors, truncated or corrupt;
 * pickled weights are refused with the way to convert them.
 */
export function openSafetensors(path: string): SafetensorsFile {
  const { header, fileBytes } = readHeader(path);
  const file = mapFile(path);
  if (file.bytes !== fileBytes) {
    file.close();
    throw new UsageError(`${path}: it was changed while it was being opened; try again when it is complete`);
  }
  return new SafetensorsFile(path, header, file);
}

/** An open file; `close()` it when the tensors that are wanted have been read. They outlive it. */
export class SafetensorsFile {
  /** The texts under `__metadata__`. */
  readonly metadata: ReadonlyMap<string, string>;
  /** Every tensor in the file, in the order of the header. */
  readonly tensors: ReadonlyMap<string, SafetensorsEntry>;
  private readonly entries: Header["entries"];
  private closed = false;

  /** To be made by {@link openSafetensors}; takes ownership of `file`. */
  constructor(
    readonly path: string,
    header: Header,
    private readonly file: MappedFile,
  ) {
    this.metadata = header.metadata;
    this.tensors = header.entries;
    this.entries = header.entries;
  }

  /**
   * One tensor, on the CPU, over the mapped file; where its data is not aligned to its type, and for bool, a copy.
   * @throws UsageError when there is no tensor of that name.
   */
  read(name: string): Tensor {
    if (this.closed) throw new TorchError(`${this.path}: it is closed already; read before close()`);
    const entry = this.entries.get(name);
    if (entry === undefined) {
      throw new UsageError(`${this.path}: there is no tensor ${describeValue(name)}`);
    }
    return this.file.tensor(entry.dtype, entry.shape, entry.start);
  }

  /** Lets go of the file. Tensors that were read stay valid. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function readHeader(path: string): { header: Header; fileBytes: number } {
  const file = openRegularFile(path);
  try {
    const fileBytes = fstatSync(file).size;
    const start = readBytes(file, 0, Math.min(fileBytes, 64));
    try {
      const length = readHeaderLength(start, fileBytes, path);
      const header = parseHeader(readBytes(file, lengthBytes, length), fileBytes, path);
      return { header, fileBytes };
    } catch (error) {
      const explanation = error instanceof UsageError ? explainForeignFormat(start) : null;
      if (explanation !== null) throw new UsageError(`${path}: ${explanation}`, { cause: error });
      throw error;
    }
  } finally {
    closeSync(file);
  }
}

function openRegularFile(path: string): number {
  try {
    // Asked before opening: opening a named pipe would wait for a writer.
    if (!statSync(path).isFile()) throw new UsageError(`${path}: must be a file`);
    return openSync(path, "r");
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    const { code, message } = cause as NodeJS.ErrnoException;
    const rule = code === "ENOENT" ? "there is no such file" : `cannot be read (${code ?? message})`;
    throw new UsageError(`${path}: ${rule}`, { cause });
  }
}

function readBytes(file: number, position: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    const count = readSync(file, bytes, done, length - done, position + done);
    if (count === 0) break;
    done += count;
  }
  return bytes.subarray(0, done);
}
