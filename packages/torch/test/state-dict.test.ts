import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { UsageError } from "@astra-rl/base";
import { breaking } from "../../base/test/support/breaking.js";
import { openStateDict, scope } from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";

interface Expected {
  dtype: string;
  shape: number[];
  values: number[];
}

/** Made by golden/make_state_dicts.py, which says with which version. */
const golden = new URL("golden/state-dicts/", import.meta.url).pathname;
const expected = (
  JSON.parse(readFileSync(join(golden, "expected.json"), "utf8")) as {
    files: Record<string, Record<string, Expected>>;
  }
).files;
const files = readdirSync(golden).filter((name) => name.endsWith(".bin"));
const good = files.filter((name) => !name.startsWith("refused"));

const folder = mkdtempSync(join(tmpdir(), "state-dict-"));
afterAll(() => rmSync(folder, { recursive: true }));

expectNoLeaks();

/** Everything in a file. */
function contentOf(path: string): Record<string, Expected> {
  using file = openStateDict(path);
  return Object.fromEntries(
    [...file.tensors].map(([name, { dtype, shape, nbytes }]) => {
      const values = scope(() => {
        const tensor = file.read(name);
        expect([tensor.dtype, tensor.shape]).toEqual([dtype, shape]);
        expect(nbytes).toBeGreaterThanOrEqual(tensor.numel());
        return tensor.to("float64").flatten().toArray() as number[];
      });
      return [name, { dtype, shape: [...shape], values }];
    }),
  );
}

describe("openStateDict", () => {
  it.each(good)("reads %s as PyTorch wrote it", (name) => {
    expect(contentOf(join(golden, name))).toEqual(expected[name.replace(/(-before-1\.6)?\.bin$/, "")]);
  });

  it("covers both formats of each file", () => {
    expect(good).toHaveLength(9);
  });

  it.each([
    ["code", /names posix\.system, which is nothing that weights are made of$/],
    ["module", /names __main__\.Small, which is nothing that weights are made of$/],
    [
      "training",
      /must hold tensors by name and nothing else, but "state_dict" is a Map; save the model's state_dict\(\) alone$/,
    ],
    ["gaps", /its tensor gap lies with gaps or overlaps \(strides 2\); save it contiguous$/],
    ["wide", /its tensor wide has 1000 numbers from 0 on, and its storage has 1$/],
  ])("refuses %s", (name, message) => {
    const path = join(golden, `refused-${name}.bin`);
    expect(() => openStateDict(path)).toThrow(UsageError);
    expect(() => openStateDict(path)).toThrow(message);
    expect(() => openStateDict(path)).toThrow(path);
    expect(existsSync("run-by-a-pickle")).toBe(false);
  });

  it.each([
    ["nothing", Buffer.alloc(0), /neither a zip archive nor a pickle/],
    ["text", Buffer.from("hello, hello, hello"), /neither a zip archive nor a pickle/],
    ["a Git LFS pointer", Buffer.from("version https://git-lfs.github.com/spec/v1\n"), /Git LFS pointer/],
    ["a web page", Buffer.from("<!doctype html><html></html>"), /web page/],
    ["a pickle of a number", Buffer.from("80024b012e", "hex"), /a pickle of something other than tensors/],
    ["a zip archive of nothing", Buffer.from(`504b0506${"00".repeat(18)}`, "hex"), /without data\.pkl/],
  ])("refuses %s", (_, bytes, message) => {
    const path = join(folder, "given.bin");
    writeFileSync(path, bytes);
    expect(() => openStateDict(path)).toThrow(UsageError);
    expect(() => openStateDict(path)).toThrow(message);
  });

  it("reports what is wrong with a path, a name, a closed file", () => {
    expect(() => openStateDict(join(folder, "none.bin"))).toThrow(breaking("file-not-found", "none.bin"));
    const file = openStateDict(join(golden, "module.bin"));
    expect(() => file.read("other")).toThrow(breaking("unknown-tensor", '"other"'));
    file.close();
    file.close();
    expect(() => file.read("head.weight")).toThrow(/closed already/);
  });

  it("refuses a file that was changed after it was opened", () => {
    const path = join(folder, "changed.bin");
    writeFileSync(path, readFileSync(join(golden, "module.bin")));
    using file = openStateDict(path);
    truncateSync(path, 100);
    expect(() => file.read("head.weight")).toThrow(breaking("file-changed", "changed.bin"));
  });
});

/** Longer runs: STATE_DICT_RUNS=100000. */
const RUNS = Number(process.env["STATE_DICT_RUNS"] ?? 800);

describe("damaged files", () => {
  /** Reads everything readable; any problem must cause a UsageError that names the file. */
  function tryToRead(bytes: Uint8Array): void {
    const path = join(folder, "damaged.bin");
    writeFileSync(path, bytes);
    try {
      contentOf(path);
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError);
      expect((error as Error).message).toContain(basename(path));
      expect((error as Error).message.length).toBeLessThan(4000);
    }
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
  }
  const contents = files.map((name) => readFileSync(join(golden, name)));

  it("are refused when truncated anywhere", () => {
    expect(contents.length).toBeGreaterThan(good.length);
    for (const bytes of contents) {
      for (let length = 0; length < bytes.length; length += 61) tryToRead(bytes.subarray(0, length));
    }
  });

  it("with any byte changed give an error or tensors", () => {
    const change = fc.record({
      file: fc.nat(contents.length - 1),
      changes: fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }),
    });
    fc.assert(
      fc.property(change, ({ file, changes }) => {
        const bytes = Uint8Array.from(contents[file]!);
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        tryToRead(bytes);
      }),
      { numRuns: RUNS, seed: 11 },
    );
  }, 3_600_000);

  it("with a pickle of random opcodes give an error", () => {
    // The format before 1.6 starts with its pickles, so the fourth, of the tensors, can be arbitrary.
    const bytes = readFileSync(join(golden, "parameters-before-1.6.bin"));
    const start = bytes.indexOf(Buffer.from("ccollections")) - 2;
    const opcodes = [
      ...Buffer.from("(.}])NKMJGXqrhjtusaeRbQc0123"),
      0x80,
      0x85,
      0x86,
      0x87,
      0x88,
      0x89,
      0x8a,
      0x8c,
      0x93,
      0x94,
      0x95,
    ];
    const opcode = fc.oneof(
      fc.constantFrom(...opcodes).map((code) => Buffer.from([code])),
      fc
        .constantFrom(
          "ccollections\nOrderedDict\n",
          "ctorch._utils\n_rebuild_tensor_v2\n",
          "ctorch\nFloatStorage\n",
          "cposix\nsystem\n",
          "c__builtin__\neval\n",
          "c__proto__\npolluted\n",
          "X\u0005\0\0\0hello",
          "X\u0007\0\0\0storage",
          "K\u0001",
        )
        .map((text) => Buffer.from(text, "latin1")),
    );
    fc.assert(
      fc.property(fc.array(opcode, { maxLength: 40 }), (pickle) => {
        tryToRead(
          Buffer.concat([bytes.subarray(0, start), Buffer.from([0x80, 2]), ...pickle, Buffer.from(".")]),
        );
      }),
      { numRuns: RUNS, seed: 12 },
    );
  }, 3_600_000);
});
