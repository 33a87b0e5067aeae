/** Position of an entry's bytes in the file. */
export interface ZipEntry {
  readonly start: number;
  readonly length: number;
}

/** A file with random access. */
export interface Bytes {
  readonly length: number;
  /** `length` bytes from `start`. The range must lie within the file. */
  read(start: number, length: number): DataView;
}

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const END_64 = 0x06064b50;
const LOCATOR_64 = 0x07064b50;

const END_BYTES = 22;
const LONGEST_COMMENT = 0xffff;
/** Maximum size of the directory; a checkpoint has some hundreds of entries. */
const LONGEST_DIRECTORY = 2 ** 26;

/**
 * The entries of a zip archive that is not compressed, by name, as `torch.save` writes them (PKWARE's APPNOTE 6.3.3,
 * with the 64-bit fields of large archives). Overlapping entries are refused: they would make the same bytes be read
 * many times.
 *
 * @param fail creates the error from a rule code and a reason
 */
export function readStoredEntries(
  file: Bytes,
  fail: (rule: string, why: string) => Error,
): Map<string, ZipEntry> {
  const read = (start: number, length: number) => {
    if (start < 0 || length < 0 || !(start + length <= file.length))
      throw fail("truncated-file", "it ends too early");
    return file.read(start, length);
  };
  const { count, start, length } = readEnd(read, file.length, fail);
  if (length > LONGEST_DIRECTORY)
    throw fail("too-large", `its directory has ${length} bytes, more than ${LONGEST_DIRECTORY}`);
  const directory = read(start, length);
  const entries = new Map<string, ZipEntry>();
  let at = 0;
  for (let index = 0; index < count; index++) {
    if (at + 46 > length || directory.getUint32(at, true) !== CENTRAL)
      throw fail("damaged-directory", "its directory is damaged");
    const flags = directory.getUint16(at + 8, true);
    const method = directory.getUint16(at + 10, true);
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((offset) =>
      directory.getUint16(at + offset, true),
    ) as [number, number, number];
    const next = at + 46 + nameLength + extraLength + commentLength;
    if (next > length) throw fail("damaged-directory", "its directory is damaged");
    const name = textOf(directory, at + 46, nameLength);
    const [full, stored, header] = sizesOf(directory, at, at + 46 + nameLength, extraLength, fail);
    at = next;
    // torch.save writes neither encrypted (bit 0) nor compressed (method other than 0) entries.
    if ((flags & 1) !== 0 || method !== 0 || full !== stored)
      throw fail("compressed-entry", `its entry ${name} is compressed or encrypted`);
    if (entries.has(name)) throw fail("duplicate-entry", `it has two entries ${name}`);
    const local = read(header, 30);
    if (local.getUint32(0, true) !== LOCAL)
      throw fail("misplaced-entry", `its entry ${name} is not where the directory says`);
    const data = header + 30 + local.getUint16(26, true) + local.getUint16(28, true);
    if (data + full > file.length) throw fail("truncated-file", "it ends too early");
    entries.set(name, { start: data, length: full });
  }
  let end = 0;
  for (const entry of [...entries.values()].sort((one, other) => one.start - other.start)) {
    if (entry.length === 0) continue;
    if (entry.start < end) throw fail("overlapping-entries", "its entries share bytes");
    end = entry.start + entry.length;
  }
  return entries;
}

type Read = (start: number, length: number) => DataView;

/** Finds the directory from the record at the end of the file, which a comment may follow. */
function readEnd(read: Read, fileLength: number, fail: (rule: string, why: string) => Error) {
  const tail = Math.min(fileLength, END_BYTES + LONGEST_COMMENT);
  const bytes = read(fileLength - tail, tail);
  let at = tail - END_BYTES;
  while (at >= 0 && bytes.getUint32(at, true) !== END) at--;
  if (at < 0) throw fail("missing-directory", "it has no directory");
  const position = fileLength - tail + at;
  const small = {
    count: bytes.getUint16(at + 10, true),
    length: bytes.getUint32(at + 12, true),
    start: bytes.getUint32(at + 16, true),
  };
  const isLarge = small.count === 0xffff || small.length === 0xffffffff || small.start === 0xffffffff;
  if (!isLarge) return small;
  const locator = read(position - 20, 20);
  if (locator.getUint32(0, true) !== LOCATOR_64) throw fail("damaged-directory", "its directory is damaged");
  const large = read(numberAt(locator, 8, fail), 56);
  if (large.getUint32(0, true) !== END_64) throw fail("damaged-directory", "its directory is damaged");
  return {
    count: numberAt(large, 32, fail),
    length: numberAt(large, 40, fail),
    start: numberAt(large, 48, fail),
  };
}

/** Uncompressed size, stored size and offset of the local header; values beyond 32 bits are in an extra field. */
function sizesOf(
  directory: DataView,
  at: number,
  extra: number,
  extraLength: number,
  fail: (rule: string, why: string) => Error,
): [full: number, stored: number, header: number] {
  const sizes = [24, 20, 42].map((offset) => directory.getUint32(at + offset, true));
  if (!sizes.includes(0xffffffff)) return sizes as [number, number, number];
  const end = extra + extraLength;
  for (let field = extra; field + 4 <= end;) {
    const [id, size] = [directory.getUint16(field, true), directory.getUint16(field + 2, true)];
    let value = field + 4;
    field = value + size;
    if (id !== 1 || field > end) continue;
    for (const [index, given] of sizes.entries()) {
      if (given !== 0xffffffff) continue;
      if (value + 8 > field) throw fail("damaged-directory", "its directory is damaged");
      sizes[index] = numberAt(directory, value, fail);
      value += 8;
    }
    return sizes as [number, number, number];
  }
  throw fail("damaged-directory", "its directory is damaged");
}

function numberAt(bytes: DataView, at: number, fail: (rule: string, why: string) => Error): number {
  const value = bytes.getBigUint64(at, true);
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw fail("damaged-directory", "its directory is damaged");
  return Number(value);
}

const decoder = new TextDecoder();

const textOf = (bytes: DataView, start: number, length: number) =>
  decoder.decode(new Uint8Array(bytes.buffer, bytes.byteOffset + start, length));
