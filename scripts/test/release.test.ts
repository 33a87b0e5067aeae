import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { prebuiltName } from "../../packages/torch/scripts/setup/prebuilt.mjs";
import { PREBUILT } from "../packages.mjs";
import { neededLibraries, newestSymbols } from "../release/elf.mjs";
import { sectionOf } from "../release/notes.mjs";
import { packedIn, run } from "../release/shared.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const readJson = (path: string) =>
  JSON.parse(readFileSync(join(root, path), "utf8")) as Record<string, unknown>;
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "release-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe("the notes of a release", () => {
  const changelog =
    "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- A.\n\n## [0.1.0]\n\n- B.\n\n[0.1.0]: x\n";

  test("are the changelog's section of the version", () => {
    expect(sectionOf(changelog, "0.2.0")).toBe("### Added\n\n- A.");
    expect(sectionOf(changelog, "0.1.0")).toBe("- B.");
  });

  test("are not written without one", () => {
    expect(() => sectionOf(changelog, "0.3.0")).toThrow('no section "## [0.3.0]"');
    expect(() => sectionOf(changelog, "Unreleased")).toThrow("is empty");
  });

  test("can be written of what is unreleased now", () => {
    expect(sectionOf(readFileSync(join(root, "CHANGELOG.md"), "utf8"), "Unreleased").length).toBeGreaterThan(
      100,
    );
  });
});

test("each prebuilt engine is an optional dependency of the engine's package, under the name of its system", () => {
  expect(PREBUILT.length).toBeGreaterThan(0);
  const described = PREBUILT.map((each) => readJson(`packages/${each}/package.json`));
  expect(described.map(({ name }) => name)).toEqual(
    described.map(({ os, cpu }) => prebuiltName((os as [string])[0], (cpu as [string])[0])),
  );
  expect(Object.keys(readJson("packages/torch/package.json")["optionalDependencies"] as object)).toEqual(
    described.map(({ name }) => name),
  );
});

test("the symbols that a file needs, its libraries and its paths are read from the file", () => {
  const source = join(folder, "x.c");
  const [library, file] = ["libother.so", "x.so"].map((name) => join(folder, name)) as [string, string];
  writeFileSync(source, "#include <dlfcn.h>\nvoid* f(const char* name) { return dlopen(name, RTLD_NOW); }\n");
  run("gcc", ["-shared", "-fPIC", "-o", library, source, "-ldl"]);
  run("gcc", ["-shared", "-fPIC", "-o", file, source, "-Wl,--no-as-needed", library, "-ldl"]);
  expect(neededLibraries(file).needed).toContain(library);
  expect(neededLibraries(file).paths).toEqual([]);
  run("gcc", ["-shared", "-fPIC", "-o", file, source, "-Wl,-rpath,/somewhere", "-ldl"]);
  expect(neededLibraries(file).paths).toEqual(["/somewhere"]);
  expect(newestSymbols([file])["GLIBC"]).toMatch(/^2\.\d+(\.\d+)?$/u);
});

test("packed packages are checked against their checksums before anything is done with them", () => {
  mkdirSync(join(folder, "package"));
  writeFileSync(join(folder, "package/package.json"), '{ "name": "one", "version": "1.2.3" }');
  run("tar", ["-czf", "one.tgz", "package"], { cwd: folder });
  const sums = run("sha256sum", ["one.tgz"], { cwd: folder });
  writeFileSync(join(folder, "SHA256SUMS"), sums);
  expect(packedIn(folder)).toEqual([{ name: "one", version: "1.2.3", path: join(folder, "one.tgz") }]);
  writeFileSync(
    join(folder, "SHA256SUMS"),
    sums.replace(/^./u, (digit) => (digit === "0" ? "1" : "0")),
  );
  expect(() => packedIn(folder)).toThrow("as packed");
});

describe("the workflows", () => {
  const workflow = (name: string) => readFileSync(join(root, ".github/workflows", name), "utf8");

  test("run scripts that exist", () => {
    for (const name of ["ci.yml", "nightly.yml", "release.yml"]) {
      const scripts = workflow(name).matchAll(/\bnode (scripts\/\S+\.mjs)/gu);
      for (const [, path] of scripts) expect([path, existsSync(join(root, path!))]).toEqual([path, true]);
    }
  });

  test("publish nothing: a release is staged, by hand and after approval", () => {
    const text = workflow("release.yml");
    expect(text).not.toMatch(/\b(npm|pnpm) publish\b/u);
    expect(/\non:\n([\s\S]*?)\n\w/u.exec(text)![1]).toMatch(/^ {2}workflow_dispatch:\n(?: {4}.*\n)*/u);
    expect(text).not.toMatch(/^ {2}(push|schedule|release|pull_request):/mu);
    const [, job] = /\n {2}stage:\n([\s\S]*)$/u.exec(text)!;
    expect(job).toContain("environment: release");
    expect(text.match(/stage\.mjs(?!.*--dry-run)/gu)).toHaveLength(1);
  });
});
