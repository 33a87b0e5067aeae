import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openTensorFile, scope } from "../src/index.js";
import { expectNoLeaks } from "./live-tensors.js";

let folder = "";
let path = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "astra-tensor-file-"));
  path = join(folder, "numbers.bin");
  const bytes = new Uint8Array(33);
  bytes.set(new Uint8Array(Float32Array.of(1, 2, 3, 4, 5, 6).buffer), 0);
  bytes.set([7, 0, 1, 2], 24);
  writeFileSync(path, bytes);
});
afterAll(() => rmSync(folder, { recursive: true }));

expectNoLeaks();

describe("openTensorFile", () => {
  it("reads the file's numbers, aligned or not", () => {
    scope(() => {
      using file = openTensorFile(path);
      expect(file.bytes).toBe(33);
      expect(file.read("float32", [2, 3], 0).toArray()).toEqual([
        [1, 2, 3],
        [4, 5, 6],
      ]);
      expect(file.read("float32", [2], 16).toArray()).toEqual([5, 6]);
      expect(file.read("uint8", [4], 24).toArray()).toEqual([7, 0, 1, 2]);
      expect(file.read("bool", [4], 24).toArray()).toEqual([1, 0, 1, 1]);
      expect(file.read("float32", [0, 5], 33).shape).toEqual([0, 5]);
      // At byte 25 an int16 is unaligned: 0x0100 little-endian from bytes 0, 1.
      expect(file.read("int16", [1], 25).toArray()).toEqual([256]);
    });
  });

  it("lets tensors be written to without changing the file", () => {
    scope(() => {
      const before = readFileSync(path);
      const file = openTensorFile(path);
      const a = file.read("float32", [6], 0);
      const b = file.read("float32", [6], 0);
      a.mul_(10);
      expect(b.toArray()).toEqual([1, 2, 3, 4, 5, 6]);
      file.close();
      expect(readFileSync(path).equals(before)).toBe(true);
      // Still valid after closing: the tensors have their own memory.
      expect(a.sum().item()).toBe(210);
      expect(() => file.read("float32", [1], 0)).toThrow("readFile: the file has been closed");
      file.close();
    });
  });

  it("refuses ranges outside the file", () => {
    using file = openTensorFile(path);
    for (const [shape, offset] of [
      [[6], 12],
      [[9], 0],
      [[1], 33],
      [[1], 30],
      [[0], 34],
      [[1], -4],
      [[2 ** 40], 0],
      [[1], 2 ** 52],
    ] as const) {
      expect(() => file.read("float32", shape, offset)).toThrow(
        /^readFile: .*outside of the file of 33 bytes/u,
      );
    }
    expect(() => file.read("float32", [2 ** 40, 2 ** 40], 0)).toThrow(
      /more elements than memory can address/u,
    );
    expect(() => file.read("float32", [-1], 0)).toThrow(/must not be negative/u);
    expect(() => file.read("float32", [1], 0.5)).toThrow(/byteOffset must be a safe integer/u);
  });

  it("opens an empty file", () => {
    const empty = join(folder, "empty.bin");
    writeFileSync(empty, "");
    using file = openTensorFile(empty);
    expect(file.bytes).toBe(0);
    scope(() => expect(file.read("int64", [0], 0).toArray()).toEqual([]));
    expect(() => file.read("int64", [1], 0)).toThrow(/outside/u);
  });
});
