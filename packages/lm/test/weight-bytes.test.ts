import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { storedWeightBytes } from "../src/weight-files.js";

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), "weights-"))));
afterEach(() => rmSync(folder, { recursive: true }));
const write = (name: string, bytes: number) => writeFileSync(join(folder, name), new Uint8Array(bytes));

it("is the size of the weights that are read: of all shards, or of pickled weights if there are no others", async () => {
  expect(await storedWeightBytes(join(folder, "nowhere"))).toBe(0);
  write("config.json", 99);
  expect(await storedWeightBytes(folder)).toBe(0);
  write("pytorch_model.bin", 300);
  expect(await storedWeightBytes(folder)).toBe(300);
  write("model-00001-of-00002.safetensors", 40);
  write("model-00002-of-00002.safetensors", 2);
  expect(await storedWeightBytes(folder)).toBe(42);
});
