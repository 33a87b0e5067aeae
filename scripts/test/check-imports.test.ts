import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { checkImports, importedNames } from "../check-imports.mjs";

let root: string;

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "import-law-"));
  write("packages/torch/package.json", JSON.stringify({ name: "@astra-rl/torch" }));
  write(
    "packages/lm/package.json",
    JSON.stringify({ name: "@astra-rl/lm", dependencies: { "@astra-rl/torch": "1" } }),
  );
  write(
    "packages/astra-rl/package.json",
    JSON.stringify({ name: "astra-rl", dependencies: { "@astra-rl/lm": "1", yaml: "2" } }),
  );
  write(
    "packages/world/package.json",
    JSON.stringify({ name: "@astra-rl/world", dependencies: { "astra-rl": "1" } }),
  );
});
afterEach(() => rmSync(root, { recursive: true }));

describe("import law", () => {
  test("passes what follows it", () => {
    write(
      "packages/lm/src/index.ts",
      'import { Tensor } from "@astra-rl/torch";\nimport { join } from "node:path";',
    );
    write("packages/astra-rl/src/sampler/tree.ts", 'import type { Node } from "../core/node.js";');
    write(
      "packages/astra-rl/src/cli/train.ts",
      'import { parse } from "yaml";\nimport { x } from "../sampler/tree.js";',
    );
    write(
      "packages/world/src/training/scorer.ts",
      'import { hashedNgrams } from "astra-rl";\nimport { draw } from "../labelled/draw.js";',
    );
    expect(checkImports(root)).toEqual([]);
  });

  test.each([
    ["packages/torch/src/a.ts", 'import { x } from "@astra-rl/lm";', "against the direction"],
    ["packages/lm/src/a.ts", 'export * from "astra-rl";', "against the direction"],
    ["packages/astra-rl/src/cli/a.ts", 'import { x } from "@astra-rl/world";', "against the direction"],
    ["packages/world/src/a.ts", 'import { x } from "../../astra-rl/src/index.js";', "leaves its package"],
    ["packages/world/src/a.ts", 'import { x } from "@astra-rl/lm";', "does not declare"],
    [
      "packages/astra-rl/src/sampler/a.ts",
      'import { x } from "../system/b.js";',
      "sampler must not know system",
    ],
    ["packages/astra-rl/src/core/a.ts", 'export { x } from "../records/b.js";', "core must not know records"],
    ["packages/astra-rl/src/core/a.ts", 'import { x } from "../index.js";', "from above"],
    ["packages/astra-rl/src/cli/a.ts", 'const z = await import("zod");', "does not declare"],
    ["packages/astra-rl/src/cli/a.ts", 'import { x } from "../../../lm/src/index.js";', "leaves its package"],
    ["packages/astra-rl/src/cli/a.ts", 'import fs from "fs";', 'write "node:fs"'],
    ["packages/astra-rl/src/elsewhere/a.ts", 'import { x } from "../core/b.js";', "does not know"],
  ])("%s with %s", (path, text, expected) => {
    write(path, text);
    const problems = checkImports(root);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(path);
    expect(problems[0]).toContain(expected);
  });

  test("finds imports in every spelling, and none in comments", () => {
    const text = [
      'import a from "a";',
      "import {\n  b,\n  type B,\n} from 'b';",
      'import "c";',
      'export * from "d";',
      'const e = await import("e");',
      'import type { F } from "f";',
      '// import x from "no";',
      '/* import y from "no"; */',
    ].join("\n");
    expect(importedNames(text)).toEqual(["a", "b", "c", "d", "e", "f"]);
  });
});
