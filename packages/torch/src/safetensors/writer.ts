import { createHash, type Hash } from "node:crypto";
import { basename } from "node:path";
import { describeValue, UsageError, writeFileAtomic } from "@astra-rl/base";
import { bytesOf, type DType } from "../dtype.js";
import { keep, noGrad, scope } from "../scope.js";
import type { Tensor } from "../tensor.js";
import { dtypeOfName, lengthBytes, maximumHeaderBytes } from "./header.js";

/** Data is copied from tensors in chunks of at most this many bytes: a multiple of every element size. */
const pieceBytes = 1 << 26;

const nameOfDtype: ReadonlyMap<DType, string> = new Map(
  [...dtypeOfName].map(([name, dtype]) => [dtype, name]),
);

/**
 * Writes tensors to a safetensors file, atomically (see `writeFileAtomic`); the same tensors give the same bytes.
 *
 * Tensors may be on any device and have any strides; tied tensors are written twice.
 * @param metadata texts to store under `__metadata__`
 * @param digests receives the SHA-256 of the file, in hexadecimal, under its file name
 * @throws UsageError for a name that the format reserves or that is not valid Unicode, metadata that is not text, and
 * any failure to write the file
 */
export function writeSafetensors(
  path: string,
  tensors: ReadonlyMap<string, Tensor> | Readonly<Record<string, Tensor>>,
  metadata: Readonly<Record<string, string>> = {},
  digests: Map<string, string> | null = null,
): void {
  const named =
    tensors instanceof Map ? (tensors as ReadonlyMap<string, Tensor>) : new Map(Object.entries(tensors));
  // Large elements first, so that each tensor's data is aligned to its element size; then by name, so that the bytes do
  // not depend on the caller's order.
  const ordered = [...named].sort(
    ([nameA, a], [nameB, b]) => bytesOf(b.dtype) - bytesOf(a.dtype) || (nameA < nameB ? -1 : 1),
  );
  const header = makeHeader(path, ordered, metadata);
  if (digests === null) {
    writeFileAtomic(path, chunksOf(header, ordered));
    return;
  }
  const hash = createHash("sha256");
  writeFileAtomic(path, hashed(chunksOf(header, ordered), hash));
  digests.set(basename(path), hash.digest("hex"));
}

function* hashed(chunks: Iterable<Uint8Array>, hash: Hash): Generator<Uint8Array> {
  for (const chunk of chunks) {
    hash.update(chunk);
    yield chunk;
  }
}

function makeHeader(
  path: string,
  ordered: readonly (readonly [string, Tensor])[],
  metadata: Readonly<Record<string, string>>,
): Uint8Array {
  // Without a prototype, so that "__proto__" is an ordinary key.
  const root = Object.create(null) as Record<string, unknown>;
  for (const [key, text] of Object.entries(metadata)) {
    if (typeof text !== "string" || isMalformed(text) || isMalformed(key)) {
      throw new UsageError(
        "invalid-metadata",
        `${path}: metadata ${describeValue(key)} must be Unicode text, got ${describeValue(text)}`,
      );
    }
  }
  if (Object.keys(metadata).length > 0) root["__metadata__"] = metadata;
  let end = 0;
  for (const [name, { dtype, shape }] of ordered) {
    if (name === "__metadata__" || isMalformed(name)) {
      throw new UsageError(
        "invalid-tensor-name",
        `${path}: ${describeValue(name)} cannot be a tensor's name in a safetensors file`,
      );
    }
    const begin = end;
    end += shape.reduce((product, size) => product * size, bytesOf(dtype));
    root[name] = { dtype: nameOfDtype.get(dtype), shape, data_offsets: [begin, end] };
  }
  const json = Buffer.from(JSON.stringify(root));
  const length = Math.ceil(json.length / 8) * 8;
  if (length > maximumHeaderBytes) {
    throw new UsageError(
      "header-too-long",
      `${path}: the header may have at most ${maximumHeaderBytes} bytes, this one has ${length}`,
    );
  }
  // Padded with spaces to a multiple of 8: the data after it is then aligned for every dtype.
  const bytes = Buffer.alloc(lengthBytes + length, " ");
  bytes.writeBigUInt64LE(BigInt(length));
  bytes.set(json, lengthBytes);
  return bytes;
}

function* chunksOf(
  header: Uint8Array,
  ordered: readonly (readonly [string, Tensor])[],
): Generator<Uint8Array> {
  yield header;
  for (const [, tensor] of ordered) {
    // Flattened in row-major order; shares the tensor's memory if possible.
    using flat = noGrad(() => keep(scope(() => tensor.detach().reshape([-1]))));
    const count = tensor.numel();
    const step = pieceBytes / bytesOf(tensor.dtype);
    for (let begin = 0; begin < count; begin += step)
      yield bytesOfPiece(flat, begin, Math.min(step, count - begin));
  }
}

function bytesOfPiece(flat: Tensor, begin: number, length: number): Uint8Array {
  return scope(() => {
    const piece = flat.narrow(0, begin, length).to("cpu");
    // A single element of a strided view counts as contiguous but keeps its stride, which prevents a view of its bytes.
    const dense = length === 1 ? piece.repeat([1]) : piece.contiguous();
    return dense.view("uint8").toTypedArray() as Uint8Array;
  });
}

/** A lone surrogate has no UTF-8 encoding; other readers refuse it. */
function isMalformed(text: string): boolean {
  return /\p{Surrogate}/u.test(text);
}
