import { describeValue } from "@astra-rl/base";
import { bytesOf, type DType } from "../dtype.js";
import { unpickle, type Global, type UnpickleOptions } from "./unpickle.js";
import { readStoredEntries, type Bytes } from "./zip-entries.js";

/** A tensor of a state_dict, with the position of its data in the file. */
export interface StoredTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Offset of its first data byte. */
  readonly start: number;
  /** Its dimensions by descending stride, if it is not row-major; null if it is. */
  readonly order: readonly number[] | null;
}

/** The tensors of a state_dict, by name. */
export type Contents = ReadonlyMap<string, StoredTensor>;

/** Contiguous data of one or more tensors. */
interface Storage {
  readonly dtype: DType;
  readonly key: string;
  readonly elements: number;
}

/** A tensor as described by the pickle. */
interface Described {
  readonly storage: Storage;
  readonly offset: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

/** Maximum size of the pickle, which contains only the tensors' descriptions. */
const LONGEST_PICKLE = 2 ** 26;
const MOST_DIMENSIONS = 16;

/**
 * Maximum ratio of the tensors' total size to the file size: data shared by several names counts for each of them; an
 * encoder-decoder's embeddings have four names.
 */
const MOST_NAMES = 8;

/** Magic number of files from before PyTorch 1.6. */
const MAGIC = 0x1950a86a20f9469cfc6cn;

/** First letter of "little". */
const LETTER_L = 0x6c;

const STORAGES: ReadonlyMap<string, DType> = new Map([
  ["FloatStorage", "float32"],
  ["DoubleStorage", "float64"],
  ["HalfStorage", "float16"],
  ["BFloat16Storage", "bfloat16"],
  ["LongStorage", "int64"],
  ["IntStorage", "int32"],
  ["ShortStorage", "int16"],
  ["CharStorage", "int8"],
  ["ByteStorage", "uint8"],
  ["BoolStorage", "bool"],
]);

type Fail = (rule: string, why: string) => Error;

/**
 * Reads the contents of a `torch.save` file.
 *
 * @param isZip true for a zip archive (since PyTorch 1.6); otherwise a sequence of pickles, then the data
 * @param fail creates the error from a rule code and a reason
 */
export function readContents(file: Bytes, isZip: boolean, fail: Fail): Contents {
  const { described, starts } = isZip ? readArchive(file, fail) : readStream(file, fail);
  if (!(described instanceof Map))
    throw fail(
      "not-tensors-by-name",
      `it must hold a dictionary of tensors, got ${describeValue(described)}`,
    );
  const contents = new Map<string, StoredTensor>();
  let total = 0;
  for (const [name, tensor] of described as Map<unknown, unknown>) {
    if (typeof name !== "string" || !tensors.has(tensor as Described)) {
      throw fail(
        "not-tensors-by-name",
        `it must hold tensors by name and nothing else, but ${describeValue(name)} is ${describeValue(tensor)}; save ` +
          `the model's state_dict() alone`,
      );
    }
    const stored = place(tensor as Described, starts, (rule, why) => fail(rule, `its tensor ${name} ${why}`));
    contents.set(name, stored);
    total += stored.shape.reduce((product, size) => product * size, bytesOf(stored.dtype));
  }
  if (total > MOST_NAMES * file.length)
    throw fail("excessive-growth", `its tensors need ${total} bytes, but it has ${file.length}`);
  return contents;
}

/** All tensors described by the pickle; no other value is accepted as a tensor. */
const tensors = new WeakSet<Described>();

/** `data.pkl` and the storages in `data/`, within a folder of any name. */
function readArchive(file: Bytes, fail: Fail) {
  const entries = readStoredEntries(file, fail);
  const name = [...entries.keys()].find((each) => /^[^/]+\/data\.pkl$/.test(each));
  if (name === undefined)
    throw fail("not-a-state-dict", "it is a zip archive without data.pkl, which torch.save did not write");
  const folder = name.slice(0, -"data.pkl".length);
  const order = entries.get(`${folder}byteorder`);
  if (order !== undefined && order.length > 0 && file.read(order.start, 1).getUint8(0) !== LETTER_L) {
    throw fail("big-endian", "its numbers are not little-endian");
  }
  const { start, length } = entries.get(name)!;
  if (length > LONGEST_PICKLE)
    throw fail("too-large", `its pickle has ${length} bytes, more than ${LONGEST_PICKLE}`);
  const options = unpickleOptions(fail);
  const { value: described } = unpickle(file.read(start, length), 0, options);
  const starts = (storage: Storage, bytes: number) => {
    const entry = entries.get(`${folder}data/${storage.key}`);
    if (entry === undefined || entry.length < bytes) return null;
    return entry.start;
  };
  return { described, starts };
}

/**
 * Five pickles: magic number, version, machine, tensors, keys; then for each key the number of elements and the data.
 */
function readStream(file: Bytes, fail: Fail) {
  const options = unpickleOptions(fail);
  const head = file.read(0, Math.min(file.length, LONGEST_PICKLE));
  let at = 0;
  const next = () => {
    const { value, end } = unpickle(head, at, options);
    at = end;
    return value;
  };
  if (next() !== MAGIC) throw fail("not-a-state-dict", "it is a pickle of something other than tensors");
  next();
  const machine = next();
  if (machine instanceof Map && machine.get("little_endian") === false)
    throw fail("big-endian", "its numbers are not little-endian");
  const described = next();
  const keys = next();
  if (!Array.isArray(keys)) throw fail("malformed-pickle", "it does not list its storages");
  const places = new Map<string, { start: number; bytes: number }>();
  for (const key of keys as unknown[]) {
    const storage = options.storages.get(key as string);
    if (storage === undefined) throw fail("malformed-pickle", "it lists a storage that no tensor has");
    if (at + 8 > file.length) throw fail("truncated-file", "it ends too early");
    const elements = Number(file.read(at, 8).getBigInt64(0, true));
    const bytes = elements * bytesOf(storage.dtype);
    at += 8;
    if (elements !== storage.elements || at + bytes > file.length)
      throw fail("truncated-file", "it ends too early");
    places.set(storage.key, { start: at, bytes });
    at += bytes;
  }
  const starts = (storage: Storage, bytes: number) => {
    const found = places.get(storage.key);
    return found === undefined || found.bytes < bytes ? null : found.start;
  };
  return { described, starts };
}

/** The Python names from which tensors are built, with their replacements. */
function unpickleOptions(fail: Fail): UnpickleOptions & { storages: Map<string, Storage> } {
  const storages = new Map<string, Storage>();
  const rebuildTensor = (values: readonly unknown[]): Described => {
    const [storage, offset, shape, strides] = values;
    if (!isStorage(storage, storages) || !isSize(offset) || !isSizes(shape) || !isSizes(strides)) {
      throw fail(
        "malformed-pickle",
        "its pickle describes a tensor without storage, offset, sizes and strides",
      );
    }
    if (shape.length !== strides.length)
      throw fail("malformed-pickle", "its pickle describes a tensor with other strides than sizes");
    const tensor: Described = { storage, offset, shape, strides };
    tensors.add(tensor);
    return tensor;
  };
  const rebuildParameter = ([tensor]: readonly unknown[]) => {
    if (!tensors.has(tensor as Described))
      throw fail("malformed-pickle", "its pickle describes a parameter without a tensor");
    return tensor;
  };
  const globals = new Map<string, Global>(
    [...STORAGES.keys()].map((name) => [`torch ${name}`, { name, call: null }]),
  );
  globals.set("collections OrderedDict", { name: "OrderedDict", call: () => new Map() });
  globals.set("torch._utils _rebuild_tensor_v2", { name: "_rebuild_tensor_v2", call: rebuildTensor });
  globals.set("torch._utils _rebuild_parameter", { name: "_rebuild_parameter", call: rebuildParameter });
  const persistent = (id: unknown): Storage => {
    // ("storage", torch.FloatStorage, key, "cpu", elements); before 1.6 with a sixth item: a view into another storage.
    const [kind, type, key, , elements, view = null] = Array.isArray(id) ? (id as unknown[]) : [];
    const dtype = STORAGES.get((type as Partial<Global> | null | undefined)?.name ?? "");
    if (
      kind !== "storage" ||
      dtype === undefined ||
      typeof key !== "string" ||
      !isSize(elements) ||
      view !== null
    ) {
      throw fail("unknown-storage", "its pickle names numbers in a way that torch.save does not");
    }
    const known = storages.get(key);
    if (known === undefined) {
      const storage = { dtype, key, elements };
      storages.set(key, storage);
      return storage;
    }
    if (known.dtype !== dtype || known.elements !== elements)
      throw fail("malformed-pickle", "its pickle describes numbers in two ways");
    return known;
  };
  return { globals, persistent, fail, storages };
}

const isSize = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isSizes = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length <= MOST_DIMENSIONS && value.every(isSize);

const isStorage = (value: unknown, storages: ReadonlyMap<string, Storage>): value is Storage =>
  storages.get((value as Partial<Storage> | null | undefined)?.key ?? "") === value && value !== undefined;

/** Position of a tensor's data: row-major, or with permuted dimensions, but without gaps. */
function place(
  { storage, offset, shape, strides }: Described,
  starts: (storage: Storage, bytes: number) => number | null,
  fail: Fail,
): StoredTensor {
  const { dtype } = storage;
  const width = bytesOf(dtype);
  const elements = shape.reduce((product, size) => product * size, 1);
  if (!(offset + elements <= storage.elements)) {
    throw fail(
      "storage-too-small",
      `has ${elements} numbers from ${offset} on, and its storage has ${storage.elements}`,
    );
  }
  const start = starts(storage, storage.elements * width);
  if (start === null) throw fail("missing-storage", "has numbers that are not in the file");
  // The stride of a dimension of size 1 does not matter.
  const long = [...shape.keys()].filter((dimension) => shape[dimension] !== 1);
  const sorted = [...long].sort((one, other) => strides[other]! - strides[one]! || one - other);
  let step = 1;
  for (const dimension of [...sorted].reverse()) {
    if (elements > 0 && strides[dimension] !== step) {
      throw fail(
        "not-contiguous",
        `lies with gaps or overlaps (strides ${strides.join(", ")}); save it contiguous`,
      );
    }
    step *= shape[dimension]!;
  }
  const inOrder = elements === 0 || sorted.every((dimension, index) => dimension === long[index]);
  const single = [...shape.keys()].filter((dimension) => shape[dimension] === 1);
  return { dtype, shape, start: start + offset * width, order: inOrder ? null : [...single, ...sorted] };
}
