import { execFileSync } from "node:child_process";
import {
  chmodSync,
  closeSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { UsageError, writeFileAtomic } from "@astra-rl/base";
import { breaking } from "../../base/test/support/breaking.js";
import {
  liveTensors,
  maxMemoryAllocated,
  memoryAllocated,
  openSafetensors,
  resetPeakMemoryStats,
  scope,
  tensor,
  writeSafetensors,
  type DType,
  type Tensor,
} from "../src/index.js";

const folder = mkdtempSync(join(tmpdir(), "safetensors-"));
afterAll(() => rmSync(folder, { recursive: true }));
const goldenFile = (name: string) => new URL(`golden/${name}`, import.meta.url).pathname;

/** dtype → bytes of one element */
const itemSizes = {
  float64: 8,
  float32: 4,
  float16: 2,
  bfloat16: 2,
  int64: 8,
  int32: 4,
  int16: 2,
  int8: 1,
  uint8: 1,
  bool: 1,
} as const satisfies Record<DType, number>;
const dtypes = Object.keys(itemSizes) as DType[];

/** A tensor with exactly these bits. */
const fromBytes = (bytes: Uint8Array, dtype: DType, shape: readonly number[]) =>
  scope(() =>
    tensor(bytes, { dtype: "uint8" })
      .view(dtype)
      .view([...shape])
      .clone(),
  );
const toBytes = (t: Tensor): Uint8Array =>
  scope(() =>
    t.numel() === 0
      ? new Uint8Array()
      : (t.contiguous().view([-1]).view("uint8").toTypedArray() as Uint8Array),
  );
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

interface Golden {
  metadata: Record<string, string>;
  tensors: Record<string, { dtype: DType; shape: number[]; bytes: string }>;
}
const golden = JSON.parse(readFileSync(goldenFile("safetensors.json"), "utf8")) as Golden;

function expectGolden(path: string): void {
  scope(() => {
    using file = openSafetensors(path);
    expect(Object.fromEntries(file.metadata)).toEqual(golden.metadata);
    expect([...file.tensors.keys()].sort()).toEqual(Object.keys(golden.tensors).sort());
    for (const [name, expected] of Object.entries(golden.tensors)) {
      const got = file.read(name);
      expect({ dtype: got.dtype, shape: got.shape, bytes: hex(toBytes(got)) }).toEqual(expected);
      const { dtype, shape, nbytes } = file.tensors.get(name)!;
      expect({ dtype, shape, nbytes }).toEqual({
        ...expected,
        bytes: undefined,
        nbytes: expected.bytes.length / 2,
      });
    }
  });
}

describe("the golden files", () => {
  it("are read bit for bit as Python wrote them", () => {
    expectGolden(goldenFile("python-written.safetensors"));
  });

  it("include our file byte for byte, as checked with Python by make_safetensors.py", () => {
    const path = join(folder, "golden.safetensors");
    scope(() => {
      const tensors = new Map(
        Object.entries(golden.tensors).map(([name, { dtype, shape, bytes }]) => [
          name,
          fromBytes(Uint8Array.from(Buffer.from(bytes, "hex")), dtype, shape),
        ]),
      );
      writeSafetensors(path, tensors, golden.metadata);
    });
    const committed = goldenFile("typescript-written.safetensors");
    if (process.env.UPDATE_GOLDEN === "1") writeFileSync(committed, readFileSync(path));
    expect(hex(readFileSync(path))).toBe(hex(readFileSync(committed)));
    expectGolden(path);
  });
});

describe("round trip", () => {
  const arbitraryTensor = fc
    .record({ dtype: fc.constantFrom(...dtypes), shape: fc.array(fc.nat(4), { maxLength: 4 }) })
    .chain(({ dtype, shape }) => {
      const length = shape.reduce((product, size) => product * size, itemSizes[dtype]);
      const byte = dtype === "bool" ? fc.nat(1) : fc.nat(255);
      return fc.record({
        dtype: fc.constant(dtype),
        shape: fc.constant(shape),
        bytes: fc.array(byte, { minLength: length, maxLength: length }),
      });
    });
  const arbitraryText = fc.string({ unit: "grapheme", maxLength: 12 });
  const arbitraryName = fc.oneof(
    arbitraryText.filter((name) => name !== "__metadata__"),
    fc.constantFrom("__proto__", "constructor", "", "0", "a.b.c", '"', "\\", "\u0000"),
  );

  it("restores every dtype, shape, name and metadata bit for bit", () => {
    const path = join(folder, "round-trip.safetensors");
    const before = liveTensors();
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(arbitraryName, arbitraryTensor), {
          selector: ([name]) => name,
          maxLength: 5,
        }),
        fc.uniqueArray(fc.tuple(arbitraryText, arbitraryText), { selector: ([key]) => key, maxLength: 3 }),
        (named, metadata) =>
          scope(() => {
            const tensors = named.map(
              ([name, { dtype, shape, bytes }]) =>
                [name, fromBytes(Uint8Array.from(bytes), dtype, shape)] as const,
            );
            writeSafetensors(path, new Map(tensors), Object.fromEntries(metadata));
            using file = openSafetensors(path);
            expect(new Map(file.metadata)).toEqual(new Map(metadata));
            expect([...file.tensors.keys()].sort()).toEqual(named.map(([name]) => name).sort());
            for (const [name, { dtype, shape, bytes }] of named) {
              const got = file.read(name);
              expect([got.dtype, got.shape, [...toBytes(got)]]).toEqual([dtype, shape, bytes]);
            }
          }),
      ),
      { numRuns: 300, seed: 1 },
    );
    expect(liveTensors()).toBe(before);
  });

  it("does not depend on the order of the tensors, and aligns each to its element size", () => {
    scope(() => {
      const tensors = new Map<string, Tensor>();
      for (const dtype of dtypes) tensors.set(`t.${dtype}`, tensor([1, 0, 1], { dtype }));
      const paths = [join(folder, "order-a.safetensors"), join(folder, "order-b.safetensors")] as const;
      writeSafetensors(paths[0], tensors);
      writeSafetensors(paths[1], Object.fromEntries([...tensors].reverse()));
      const bytes = readFileSync(paths[0]);
      expect(hex(bytes)).toBe(hex(readFileSync(paths[1])));
      const length = Number(bytes.readBigUInt64LE());
      expect(length % 8).toBe(0);
      const header = JSON.parse(bytes.subarray(8, 8 + length).toString()) as Record<
        string,
        { data_offsets: number[] }
      >;
      for (const dtype of dtypes) expect(header[`t.${dtype}`]!.data_offsets[0]! % itemSizes[dtype]).toBe(0);
    });
  });

  it("writes the values of views, transposed tensors and parameters", () => {
    scope(() => {
      const path = join(folder, "views.safetensors");
      const matrix = tensor(
        [
          [1, 2, 3],
          [4, 5, 6],
        ],
        { requiresGrad: true },
      );
      writeSafetensors(path, {
        whole: matrix,
        turned: matrix.transpose(0, 1),
        column: matrix.narrow(1, 1, 1),
        number: matrix.narrow(0, 1, 1).select(1, 2),
        apart: tensor([1, 2, 3]).slice(0, 1, 3, 2),
      });
      using file = openSafetensors(path);
      expect(file.read("whole").toArray()).toEqual([
        [1, 2, 3],
        [4, 5, 6],
      ]);
      expect(file.read("turned").toArray()).toEqual([
        [1, 4],
        [2, 5],
        [3, 6],
      ]);
      expect(file.read("column").toArray()).toEqual([[2], [5]]);
      expect(file.read("number").toArray()).toEqual([6]);
      expect(file.read("apart").toArray()).toEqual([2]);
    });
  });
});

describe("read tensors", () => {
  it("are private: writing to them changes neither the file nor a second reading", () => {
    scope(() => {
      const path = join(folder, "private.safetensors");
      writeSafetensors(path, { weight: tensor([1, 2, 3]) });
      const before = readFileSync(path);
      {
        using file = openSafetensors(path);
        file.read("weight").mul_(7);
      }
      expect(hex(readFileSync(path))).toBe(hex(before));
      using again = openSafetensors(path);
      expect(again.read("weight").toArray()).toEqual([1, 2, 3]);
    });
  });

  it("outlive the file: closed, overwritten by a rename, or removed", () => {
    scope(() => {
      const path = join(folder, "outlive.safetensors");
      const values = Float32Array.from({ length: 5000 }, (_, i) => i);
      writeSafetensors(path, { weight: tensor(values) });
      const file = openSafetensors(path);
      const weight = file.read("weight");
      file.close();
      file.close();
      expect(() => file.read("weight")).toThrow("closed");
      writeSafetensors(path, { weight: tensor(new Float32Array(5000)) });
      rmSync(path);
      expect(weight.toTypedArray()).toEqual(values);
    });
  });

  /** An old file with 20,000 numbers, several pages of memory. */
  const writeLongAgo = (name: string): [path: string, values: Float32Array] => {
    const path = join(folder, name);
    const values = Float32Array.from({ length: 20_000 }, (_, i) => i);
    writeSafetensors(path, { weight: tensor(values), other: tensor(values) });
    utimesSync(path, 1e9, 1e9);
    return [path, values];
  };
  const overwrite = (path: string) => {
    const file = openSync(path, "r+");
    writeSync(file, Buffer.alloc(1000, 7), 0, 1000, 100_000);
    closeSync(file);
  };
  const shorten = (path: string) => truncateSync(path, 4096);

  it.each([
    ["overwritten", overwrite],
    ["shortened", shorten],
  ])("are unchanged when the file is %s in place afterwards", (_, change) => {
    scope(() => {
      const [path, values] = writeLongAgo("changed-later.safetensors");
      using file = openSafetensors(path);
      const weight = file.read("weight");
      change(path);
      expect(weight.toTypedArray()).toEqual(values);
    });
  });

  it.each([
    ["overwritten", overwrite],
    ["shortened", shorten],
  ])("are refused when the file was %s in place since it was opened", (_, change) => {
    scope(() => {
      const [path, values] = writeLongAgo("changed-before.safetensors");
      using file = openSafetensors(path);
      expect(file.read("other").toTypedArray()).toEqual(values);
      change(path);
      const sentence = `${path}: it was changed while it was being read; load it again when it is complete`;
      expect(() => file.read("weight")).toThrow(breaking("file-changed", sentence));
      if (change === overwrite) {
        using again = openSafetensors(path);
        expect(again.read("weight").shape).toEqual([20_000]);
      }
    });
  });

  it("are those of the opened file, even if another one takes its name", () => {
    scope(() => {
      const [path, values] = writeLongAgo("renamed.safetensors");
      using file = openSafetensors(path);
      writeSafetensors(path, { weight: tensor([1, 2]) });
      expect(file.read("weight").toTypedArray()).toEqual(values);
      rmSync(path);
      expect(file.read("other").toTypedArray()).toEqual(values);
    });
  });

  it("take only their own memory", () => {
    scope(() => {
      const [path] = writeLongAgo("once.safetensors");
      using file = openSafetensors(path);
      const before = memoryAllocated();
      resetPeakMemoryStats();
      const weight = file.read("weight");
      expect(weight.numel()).toBe(20_000);
      expect(maxMemoryAllocated() - before).toBeLessThan(80_000 + 4096);
    });
  });

  it("are correct if the data is not aligned to its type, as from other writers", () => {
    scope(() => {
      const path = join(folder, "unaligned.safetensors");
      const header = Buffer.from('{"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}  ');
      expect(header.length % 8).not.toBe(0);
      const length = Buffer.alloc(8);
      length.writeBigUInt64LE(BigInt(header.length));
      writeFileSync(
        path,
        Buffer.concat([length, header, Buffer.from(new Float64Array([1.5, -2.25]).buffer)]),
      );
      using file = openSafetensors(path);
      expect(file.read("x").add(1).toArray()).toEqual([2.5, -1.25]);
    });
  });
});

describe("an invalid file is refused with its path and the rule", () => {
  const path = join(folder, "wrong.safetensors");
  /** A file from a header's text (its length is put before it) and data. */
  const build = (header: string | Uint8Array, dataBytes = 0, length?: bigint): Buffer => {
    const text = Buffer.from(header as string);
    const start = Buffer.alloc(8);
    start.writeBigUInt64LE(length ?? BigInt(text.length));
    return Buffer.concat([start, text, Buffer.alloc(dataBytes)]);
  };
  const entry = (fields: object = {}) =>
    JSON.stringify({ dtype: "F32", shape: [2], data_offsets: [0, 8], ...fields });
  const one = (fields: object, dataBytes = 8) => build(`{"w":${entry(fields)}}`, dataBytes);
  const cases: [string, Uint8Array, string][] = [
    ["an empty file", Buffer.alloc(0), "8-byte length of its header, but has only 0 bytes"],
    ["seven bytes", Buffer.alloc(7), "but has only 7 bytes"],
    ["a length beyond the end", build("{}", 0, 3n), "the header is given 3 bytes, but only 2 follow"],
    [
      "a length over 100 MB",
      build("{}", 0, 100_000_001n),
      "at most 100000000 bytes, but its length is given as 100000001",
    ],
    ["a huge length", build("{}", 0, 0xffff_ffff_ffff_ffffn), "its length is given as 18446744073709551615"],
    ["no header", build(""), 'it must begin with "{"'],
    ["a space first", build(" {}"), 'it must begin with "{"'],
    ["an array", build("[]"), 'it must begin with "{"'],
    ["text that is no JSON", build("{nonsense}"), "it must be JSON"],
    ["invalid UTF-8", build(Uint8Array.of(0x7b, 0xff, 0x7d)), "it must be UTF-8"],
    ["trailing text", build("{} x"), "it must be JSON"],
    ["a tensor twice", build(`{"w":${entry()},"w":${entry()}}`, 8), 'the key "w" occurs twice'],
    [
      "a tensor twice, escaped",
      build(`{"w":${entry()},"\\u0077" :${entry()}}`, 8),
      'the key "w" occurs twice',
    ],
    [
      "a field twice",
      build('{"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8),
      '"dtype" occurs twice',
    ],
    ["metadata twice", build('{"__metadata__":{},"__metadata__":{}}'), '"__metadata__" occurs twice'],
    [
      "metadata that is a number",
      build('{"__metadata__":{"a":1}}'),
      '__metadata__ "a" must be a string, got 1',
    ],
    ["metadata that is a list", build('{"__metadata__":[]}'), "__metadata__ must be an object"],
    ["a tensor that is null", build('{"w":null}'), 'tensor "w" must be an object, got null'],
    [
      "a missing field",
      build('{"w":{"dtype":"F32","shape":[2]}}', 8),
      "data_offsets must be two whole numbers",
    ],
    ["an unknown field", one({ strides: [1] }), 'tensor "w" has the unknown field "strides"'],
    ["an unknown dtype", one({ dtype: "F31" }), 'has dtype "F31"; those supported are F64, F32'],
    ["a dtype of ours", one({ dtype: "float32" }), 'has dtype "float32"'],
    ["a dtype from the prototype", one({ dtype: "constructor" }), 'has dtype "constructor"'],
    ["a negative size", one({ shape: [-2] }), "shape must be an array of whole numbers ≥ 0, got [-2]"],
    ["a fraction", one({ shape: [2.5] }), "shape must be an array of whole numbers"],
    ["a size that is text", one({ shape: ["2"] }), "shape must be an array of whole numbers"],
    ["a size beyond 2^53", one({ shape: [2 ** 53] }), "shape must be an array of whole numbers"],
    ["a product beyond 2^53", one({ shape: [2 ** 30, 2 ** 30] }), "is too large"],
    [
      "a product beyond 2^53 behind a zero",
      one({ shape: [2 ** 40, 2 ** 40, 0], data_offsets: [0, 0] }, 0),
      "is too large",
    ],
    ["negative offsets", one({ data_offsets: [-8, 0] }), "data_offsets must be two whole numbers"],
    ["three offsets", one({ data_offsets: [0, 8, 8] }), "data_offsets must be two whole numbers"],
    ["offsets backwards", one({ data_offsets: [8, 0] }), "data_offsets must not run backwards"],
    [
      "a size that differs from the offsets",
      one({ shape: [3] }),
      "takes 12 bytes, but its data_offsets [0, 8] hold 8",
    ],
    ["data missing", one({}, 7), "truncated"],
    ["data too much", one({}, 9), "1 bytes at the end of the file belong to no tensor"],
    ["data without tensors", build("{}", 4), "4 bytes at the end of the file belong to no tensor"],
    ["a hole first", one({ data_offsets: [4, 12] }, 12), "leaves a hole before it: it begins at 4, not 0"],
    [
      "a hole between",
      build(`{"a":${entry()},"b":${entry({ data_offsets: [12, 20] })}}`, 20),
      'tensor "b" leaves a hole',
    ],
    [
      "an overlap",
      build(`{"a":${entry()},"b":${entry({ data_offsets: [4, 12] })}}`, 12),
      'tensor "b" overlaps',
    ],
    ["two at one place", build(`{"a":${entry()},"b":${entry()}}`, 8), 'tensor "b" overlaps'],
    ["pickled weights, zipped", Buffer.from("504b03040000080800000000", "hex"), "pickled weights"],
    [
      "pickled weights, bare",
      Buffer.from("80028a0a6cfc9c46f920", "hex"),
      "save_pretrained(FOLDER, safe_serialization=True)",
    ],
    ["short pickle", Buffer.from("80024b012e", "hex"), "pickled weights"],
    [
      "a Git LFS pointer",
      Buffer.from("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
      "git lfs pull",
    ],
    ["a web page", Buffer.from("<!DOCTYPE html><html></html>"), "web page"],
    ["a GGUF file", Buffer.from("GGUF\u0003\u0000\u0000\u0000\u0000\u0000\u0000"), "GGUF"],
  ];
  it.each(cases)("%s", (_, bytes, rule) => {
    writeFileSync(path, bytes);
    const before = liveTensors();
    expect(() => openSafetensors(path)).toThrow(UsageError);
    expect(() => openSafetensors(path)).toThrow(`${path}: `);
    expect(() => openSafetensors(path)).toThrow(rule);
    expect(liveTensors()).toBe(before);
  });

  it("but a header of 640 bytes is not mistaken for a pickle, though its length begins with the same bytes", () => {
    writeFileSync(path, build(`{}${" ".repeat(638)}`));
    expect([...readFileSync(path).subarray(0, 2)]).toEqual([0x80, 0x02]);
    using file = openSafetensors(path);
    expect(file.tensors.size).toBe(0);
  });

  it("a missing file, a folder, a named pipe, an unknown tensor", () => {
    const missing = join(folder, "missing.safetensors");
    expect(() => openSafetensors(missing)).toThrow(breaking("file-not-found", missing));
    expect(() => openSafetensors(folder)).toThrow(breaking("not-a-file", folder));
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    expect(() => openSafetensors(pipe)).toThrow(breaking("not-a-file", pipe));
    using file = openSafetensors(goldenFile("python-written.safetensors"));
    expect(() => file.read("nothing")).toThrow(breaking("unknown-tensor", '"nothing"'));
    expect(() => file.read("__proto__")).toThrow(breaking("unknown-tensor", '"__proto__"'));
  });
});

describe("mutated files", () => {
  it("10,000 random mutations: each is read as valid tensors or refused with a UsageError", () => {
    const original = readFileSync(goldenFile("python-written.safetensors"));
    const headerLength = Number(original.readBigUInt64LE());
    const path = join(folder, "mutated.safetensors");
    const before = liveTensors();
    const random = mulberry(20261120);
    const below = (n: number) => Math.floor(random() * n);
    const tokens = [
      '"',
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "-1",
      "0",
      "1e9",
      "9007199254740993",
      "null",
      '"F32"',
      "\\u0000",
      "I64",
      "__metadata__",
    ];
    const mutate = (): Buffer => {
      let bytes = Buffer.from(original);
      for (let count = 1 + below(3); count > 0; count -= 1) {
        // Mostly inside the header, where most rules apply.
        const at = random() < 0.8 ? 8 + below(headerLength) : below(bytes.length + 1);
        const kind = below(7);
        const insertion = Buffer.from(tokens[below(tokens.length)]!);
        if (kind === 0) bytes[at % bytes.length] = below(256);
        else if (kind === 1) bytes[at % bytes.length]! ^= 1 << below(8);
        else if (kind === 2) bytes = bytes.subarray(0, at);
        else if (kind === 3) bytes = Buffer.concat([bytes.subarray(0, at), insertion, bytes.subarray(at)]);
        else if (kind === 4)
          bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1 + below(8))]);
        else if (kind === 5) bytes.write(String(below(100)), at % bytes.length, "latin1");
        else bytes.writeUInt8(below(256), below(Math.min(8, bytes.length)));
        if (bytes.length === 0) break;
      }
      // Half of the time the header's length is corrected, or few mutations would pass the first rule.
      if (bytes.length >= 8 && random() < 0.5) {
        bytes.writeBigUInt64LE(BigInt(Math.max(0, headerLength + bytes.length - original.length)));
      }
      return bytes;
    };
    let [read, refused] = [0, 0];
    const handle = openSync(path, "w");
    for (let round = 0; round < 10_000; round += 1) {
      const bytes = mutate();
      // In place: truncating a file makes some file systems wait for the disk, 10,000 times.
      writeSync(handle, bytes, 0, bytes.length, 0);
      ftruncateSync(handle, bytes.length);
      try {
        scope(() => {
          using file = openSafetensors(path);
          for (const [name, { dtype, shape }] of file.tensors) {
            const got = file.read(name);
            if (got.dtype !== dtype || got.shape.join() !== shape.join())
              expect.fail(`${name} was read wrongly`);
            got.toTypedArray();
          }
        });
        read += 1;
      } catch (error) {
        if (!(error instanceof UsageError) || !error.message.startsWith(path)) throw error;
        refused += 1;
      }
    }
    closeSync(handle);
    expect(read + refused).toBe(10_000);
    // Both outcomes must occur, or the mutations test nothing.
    expect(read).toBeGreaterThan(100);
    expect(refused).toBeGreaterThan(5000);
    expect(liveTensors()).toBe(before);
  }, 120_000);
});

/** A small seeded generator (mulberry32): the same mutations on every run. */
function mulberry(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

describe("writing", () => {
  const leftovers = (where: string) => readdirSync(where).filter((name) => name.endsWith(".partial"));

  it.each([
    ["a reserved name", () => ({ tensors: { __metadata__: tensor([1]) }, metadata: {} })],
    ["half of a surrogate pair", () => ({ tensors: { "\ud800": tensor([1]) }, metadata: {} })],
    ["metadata that is no text", () => ({ tensors: {}, metadata: { a: 1 as unknown as string } })],
    ["malformed metadata", () => ({ tensors: {}, metadata: { a: "\udc00" } })],
  ])("refuses %s and leaves no file", (_, make) => {
    scope(() => {
      const path = join(folder, "refused.safetensors");
      const { tensors, metadata } = make();
      expect(() =>
        writeSafetensors(path, tensors as Record<string, Tensor>, metadata as Record<string, string>),
      ).toThrow(UsageError);
      expect(existsSync(path)).toBe(false);
    });
  });

  it("leaves the old file intact if it fails midway, and removes its temporary file", () => {
    const path = join(folder, "half.json");
    writeFileAtomic(path, ["old"]);
    const failing = function* () {
      yield "new, but ";
      throw new Error("interrupted");
    };
    expect(() => writeFileAtomic(path, failing())).toThrow("interrupted");
    expect(readFileSync(path, "utf8")).toBe("old");
    expect(leftovers(folder)).toEqual([]);
    writeFileAtomic(path, ["new", Buffer.from("er")]);
    expect(readFileSync(path, "utf8")).toBe("newer");
  });

  it("reports what is wrong with the folder", () => {
    const cases: [string, string][] = [
      [join(folder, "nowhere", "x.safetensors"), "the folder does not exist; create it first (ENOENT)"],
      [
        join(goldenFile("optim.json"), "x.safetensors"),
        "a part of the path is a file, not a folder (ENOTDIR)",
      ],
      [folder, "there is a folder of that name; choose another name (EISDIR)"],
      [join(folder, "x".repeat(300)), "the name is too long for the file system"],
    ];
    for (const [path, rule] of cases) {
      expect(() => writeSafetensors(path, {})).toThrow(UsageError);
      expect(() => writeSafetensors(path, {})).toThrow(`${path}: cannot be written: ${rule}`);
    }
    expect(leftovers(folder)).toEqual([]);
    expect(leftovers(tmpdir()).filter((name) => name.startsWith(`.${basename(folder)}`))).toEqual([]);
  });

  it("a folder without permission to write", ({ skip }) => {
    skip(process.getuid?.() === 0, "root may write everywhere");
    const closed = join(folder, "closed");
    mkdirSync(closed);
    chmodSync(closed, 0o555);
    expect(() => writeSafetensors(join(closed, "x"), {})).toThrow("the folder may not be written");
  });

  it.each([
    ["full", "size=64k", "the disk is full; free some space or choose another folder (ENOSPC)"],
    ["read-only", "ro,size=64k", "the file system is read-only; choose another folder (EROFS)"],
  ])("reports a %s disk with a UsageError, and leaves nothing behind", (name, options, rule) => {
    const mounted = join(folder, name);
    mkdirSync(mounted);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", mounted], { stdio: "ignore" });
    } catch {
      console.warn(`skipped: a ${name} disk needs the right to mount one`);
      return;
    }
    try {
      scope(() => {
        const path = join(mounted, "x.safetensors");
        const big = tensor(new Float32Array(100_000));
        expect(() => writeSafetensors(path, { big })).toThrow(UsageError);
        expect(() => writeSafetensors(path, { big })).toThrow(`${path}: cannot be written: ${rule}`);
        expect(readdirSync(mounted)).toEqual([]);
      });
    } finally {
      execFileSync("umount", [mounted]);
    }
  });
});
