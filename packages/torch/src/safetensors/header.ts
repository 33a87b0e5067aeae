import { describeValue, UsageError } from "@astra-rl/base";
import { bytesOf, type DType } from "../dtype.js";
import { findDuplicateKey } from "./duplicate-key.js";

/** A tensor's entry in the header. */
export interface SafetensorsEntry {
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Size of its data in bytes. */
  readonly nbytes: number;
}

/** An entry with the position of its data in the file. */
export interface PlacedEntry extends SafetensorsEntry {
  /** Offset of the first data byte from the start of the file. */
  readonly start: number;
}

/** A fully validated header. */
export interface Header {
  readonly metadata: ReadonlyMap<string, string>;
  /** In the order of the header. */
  readonly entries: ReadonlyMap<string, PlacedEntry>;
}

/** The file starts with the header's length: a little-endian 64-bit integer. */
export const lengthBytes = 8;

/** The format's own limit; without it, a corrupt length would make the reader allocate any amount. */
export const maximumHeaderBytes = 100_000_000;

/** The format's names of the supported dtypes. */
export const dtypeOfName: ReadonlyMap<string, DType> = new Map<string, DType>([
  ["F64", "float64"],
  ["F32", "float32"],
  ["F16", "float16"],
  ["BF16", "bfloat16"],
  ["I64", "int64"],
  ["I32", "int32"],
  ["I16", "int16"],
  ["I8", "int8"],
  ["U8", "uint8"],
  ["BOOL", "bool"],
]);

/**
 * Length of the header, from the first bytes of the file.
 * @param start at least the first 8 bytes, if the file is that long
 * @throws UsageError (naming `path`) if the file is too short for the length field or for the header
 */
export function readHeaderLength(start: Uint8Array, fileBytes: number, path: string): number {
  if (fileBytes < lengthBytes) {
    throw new UsageError(
      "not-safetensors",
      `${path}: not a safetensors file: it must begin with the 8-byte length of its header, ` +
        `but has only ${fileBytes} bytes`,
    );
  }
  const length = new DataView(start.buffer, start.byteOffset, lengthBytes).getBigUint64(0, true);
  if (length > BigInt(maximumHeaderBytes)) {
    throw new UsageError(
      "header-too-long",
      `${path}: not a safetensors file, or corrupt: the header may have at most ${maximumHeaderBytes} bytes, ` +
        `but its length is given as ${length}`,
    );
  }
  if (length > BigInt(fileBytes - lengthBytes)) {
    throw new UsageError(
      "truncated-file",
      `${path}: truncated or corrupt: the header is given ${length} bytes, ` +
        `but only ${fileBytes - lengthBytes} follow; copy or download the file again`,
    );
  }
  return Number(length);
}

/**
 * Parses and validates the header's JSON.
 * @param bytes the header alone, without the length before it
 * @throws UsageError naming `path`, the tensor and the violated rule
 */
export function parseHeader(bytes: Uint8Array, fileBytes: number, path: string): Header {
  const fail: Fail = (rule, sentence, cause) => {
    throw new UsageError(rule, `${path}: corrupt safetensors header: ${sentence}`, { cause });
  };
  const root = parseObject(bytes, fail);
  const dataStart = lengthBytes + bytes.length;
  const metadata = new Map<string, string>();
  const entries = new Map<string, PlacedEntry>();
  for (const [name, value] of Object.entries(root)) {
    if (name === "__metadata__") {
      if (!isObject(value))
        return fail("invalid-metadata", `__metadata__ must be an object, got ${describeValue(value)}`);
      for (const [key, text] of Object.entries(value)) {
        if (typeof text !== "string") {
          return fail(
            "invalid-metadata",
            `__metadata__ ${describeValue(key)} must be a string, got ${describeValue(text)}`,
          );
        }
        metadata.set(key, text);
      }
    } else {
      entries.set(name, readEntry(name, value, dataStart, { path, fail }));
    }
  }
  checkLayout(entries, dataStart, fileBytes, path, fail);
  return { metadata, entries };
}

type Fail = (rule: string, sentence: string, cause?: unknown) => never;

function parseObject(bytes: Uint8Array, fail: Fail): Record<string, unknown> {
  if (bytes[0] !== 0x7b) return fail("not-an-object", 'it must begin with "{"');
  let text: string;
  let root: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    return fail("not-utf8", "it must be UTF-8", cause);
  }
  try {
    root = JSON.parse(text);
  } catch (cause) {
    return fail("not-json", "it must be JSON", cause);
  }
  // JSON.parse keeps the last of two equal keys; other readers may keep the first and load other weights.
  const duplicate = findDuplicateKey(text);
  if (duplicate !== null)
    return fail("duplicate-key", `the key ${describeValue(duplicate)} occurs twice in one object`);
  return root as Record<string, unknown>;
}

function readEntry(
  name: string,
  value: unknown,
  dataStart: number,
  { path, fail }: { path: string; fail: Fail },
): PlacedEntry {
  const where = `tensor ${describeValue(name)}`;
  if (!isObject(value))
    return fail("invalid-type", `${where} must be an object, got ${describeValue(value)}`);
  for (const key of Object.keys(value)) {
    if (key !== "dtype" && key !== "shape" && key !== "data_offsets") {
      return fail("unknown-key", `${where} has the unknown field ${describeValue(key)}`);
    }
  }
  const dtype = typeof value.dtype === "string" ? dtypeOfName.get(value.dtype) : undefined;
  if (dtype === undefined) {
    const rule = `${where} has dtype ${describeValue(value.dtype)}; those supported are ${[...dtypeOfName.keys()].join(", ")}`;
    // Sound files have types that are not read here, such as the 8-bit ones of quantized models.
    if (typeof value.dtype === "string") throw new UsageError("unsupported-dtype", `${path}: ${rule}`);
    return fail("unsupported-dtype", rule);
  }
  const { shape, data_offsets: offsets } = value;
  if (!Array.isArray(shape) || !shape.every(isCount)) {
    return fail(
      "invalid-shape",
      `${where} shape must be an array of whole numbers ≥ 0, got ${describeValue(shape)}`,
    );
  }
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount)) {
    return fail(
      "invalid-offsets",
      `${where} data_offsets must be two whole numbers ≥ 0, got ${describeValue(offsets)}`,
    );
  }
  const [begin, end] = offsets as [number, number];
  if (end < begin)
    return fail("reversed-offsets", `${where} data_offsets must not run backwards, got [${begin}, ${end}]`);
  // Zeros count as 1, so that a size of 0 cannot hide an overflow in the other factors.
  const product = shape.reduce((result: bigint, size: number) => result * BigInt(size || 1), 1n);
  const nbytes = shape.includes(0) ? 0n : product * BigInt(bytesOf(dtype));
  if (product * BigInt(bytesOf(dtype)) > BigInt(Number.MAX_SAFE_INTEGER)) {
    return fail("shape-too-large", `${where} shape ${describeValue(shape)} is too large`);
  }
  if (nbytes !== BigInt(end - begin)) {
    return fail(
      "size-mismatch",
      `${where} of shape [${shape.join(", ")}] and dtype ${String(value.dtype)} takes ${nbytes} bytes, ` +
        `but its data_offsets [${begin}, ${end}] hold ${end - begin}`,
    );
  }
  return {
    dtype,
    shape: Object.freeze([...(shape as number[])]),
    nbytes: Number(nbytes),
    start: dataStart + begin,
  };
}

/** The data must cover the rest of the file exactly, without gaps or overlaps. */
function checkLayout(
  entries: ReadonlyMap<string, PlacedEntry>,
  dataStart: number,
  fileBytes: number,
  path: string,
  fail: Fail,
): void {
  const ordered = [...entries].sort(([, a], [, b]) => a.start - b.start || a.nbytes - b.nbytes);
  let expected = dataStart;
  for (const [name, entry] of ordered) {
    const where = `tensor ${describeValue(name)}`;
    if (entry.start !== expected) {
      const [code, fault] =
        entry.start < expected
          ? ["overlapping-tensors", "overlaps the tensor before it"]
          : ["gap-between-tensors", "leaves a hole before it"];
      return fail(
        code,
        `${where} ${fault}: it begins at ${entry.start - dataStart}, not ${expected - dataStart}`,
      );
    }
    expected += entry.nbytes;
    if (expected > fileBytes) {
      throw new UsageError(
        "truncated-file",
        `${path}: truncated: ${where} ends at byte ${expected}, but the file has ${fileBytes}; ` +
          "copy or download the file again",
      );
    }
  }
  if (expected !== fileBytes) {
    return fail("trailing-bytes", `${fileBytes - expected} bytes at the end of the file belong to no tensor`);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
