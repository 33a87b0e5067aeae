import { expect, test } from "vitest";
import {
  checkNode,
  checkPlatform,
  compilerShortcoming,
} from "../../packages/torch/scripts/setup/platform.mjs";

test("systems that nothing has been built for are named, without advice that would not help there", () => {
  expect(() => checkPlatform("linux")).not.toThrow();
  for (const [platform, name] of [
    ["darwin", "macOS"],
    ["win32", "Windows"],
    ["freebsd", "freebsd"],
  ] as const) {
    const problem = (() => {
      try {
        checkPlatform(platform);
      } catch (error) {
        return (error as { report(): string }).report();
      }
      return "";
    })();
    expect(problem).toContain(`${name} is not supported yet`);
    expect(problem).not.toMatch(/apt/u);
  }
});

test("a Node that is older than the packages ask for is told of", () => {
  for (const version of ["20.19.0", "22.0.0", "24.1.0"]) expect(() => checkNode(version)).not.toThrow();
  for (const version of ["18.20.0", "20.18.3"]) {
    expect(() => checkNode(version)).toThrow(`Node is version ${version}; 20.19 or later is needed`);
  }
});

test("a compiler that leaves out vector loops or tiles is told of", () => {
  const gcc = "g++ (Debian) 1.2.3\nCopyright (C) Free Software Foundation, Inc.";
  expect(compilerShortcoming(gcc, "12", "x64")).toBeNull();
  expect(compilerShortcoming(gcc, "13.2.0", "x64")).toBeNull();
  expect(compilerShortcoming(gcc, "11.3.0", "x64")).toMatch(/^g\+\+ 11 does not vectorise all/u);
  expect(compilerShortcoming(gcc, "10", "x64")).toMatch(/^g\+\+ 10 .*tiles/u);
  expect(compilerShortcoming(gcc, "9.4.0", "x64")).toMatch(/^g\+\+ 9 /u);
  expect(compilerShortcoming("Debian clang version 14.0.6", "14.0.6", "x64")).toMatch(/^clang /u);
  expect(compilerShortcoming(gcc, "10", "arm64")).toBeNull();
});
