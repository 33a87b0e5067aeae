import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { COMMAND_LINE } from "../red-before/command-line.mjs";
import { ENGINE } from "../red-before/engine.mjs";
import { MODELS } from "../red-before/models.mjs";

const place = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));

test.each([...ENGINE, ...MODELS, ...COMMAND_LINE])(
  "$line: what undoes the fix finds its place",
  (regression) => {
    const { file, source, from, to } = regression;
    expect(existsSync(place(file))).toBe(true);
    expect(readFileSync(place(source), "utf8").split(from)).toHaveLength(2);
    expect(to).not.toBe(from);
  },
);
