import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { KERNEL_SOURCES, kernelHash } from "../kernels.mjs";

const repository = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "kernels-"));
  for (const path of KERNEL_SOURCES) {
    const file = /\.\w+$/u.test(path) ? join(root, path) : join(root, path, "inner/one.cpp");
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, path);
  }
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test("the hash of the kernels changes with any of their files, and with nothing else", () => {
  const first = kernelHash(root);
  writeFileSync(join(root, "README.md"), "not a kernel");
  expect(kernelHash(root)).toBe(first);

  const kernel = join(root, "packages/torch/native/inner/one.cpp");
  const source = readFileSync(kernel);
  writeFileSync(kernel, "changed");
  expect(kernelHash(root)).not.toBe(first);
  writeFileSync(kernel, source);
  expect(kernelHash(root)).toBe(first);

  renameSync(kernel, join(dirname(kernel), "two.cpp"));
  expect(kernelHash(root)).not.toBe(first);
});

test("a source that has moved is an error, so that no kernel goes unnoticed", () => {
  rmSync(join(root, "packages/torch/src/kernels"), { recursive: true });
  expect(() => kernelHash(root)).toThrow("there is no packages/torch/src/kernels");
  expect(kernelHash(repository)).toMatch(/^[0-9a-f]{64}$/u);
});
