import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { makeFolder, UsageError } from "@astra-rl/base";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "make-folder-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

it("creates missing folders, and keeps existing ones", () => {
  const path = join(folder, "a", "b", "c");
  makeFolder(path);
  expect(statSync(path).isDirectory()).toBe(true);
  writeFileSync(join(path, "kept"), "");
  makeFolder(path);
  expect(existsSync(join(path, "kept"))).toBe(true);
});

it("names the folder that cannot be created, and returns on file systems that allow none", () => {
  writeFileSync(join(folder, "file"), "");
  for (const [path, named] of [
    [join(folder, "file", "below"), join(folder, "file", "below")],
    ["/proc/none/below", "/proc/none"],
  ] as const) {
    expect(() => makeFolder(path)).toThrow(UsageError);
    expect(() => makeFolder(path)).toThrow(named);
  }
});
