import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { UsageError } from "@astra-rl/base";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { readJsonLines } from "@astra-rl/assembly/program";

const SHAPE = '{"text": …}';
const SCHEMA = z.object({ text: z.string() });

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "json-lines-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

function file(content: string | Buffer): string {
  const path = join(folder, "input.jsonl");
  writeFileSync(path, content);
  return path;
}

test("reads objects in order, ignoring empty lines and carriage returns", async () => {
  const path = file('{"text":"a","more":1}\r\n\n{"text":"🙂"}\n');
  expect((await readJsonLines(path, SHAPE, SCHEMA)).map(({ value, line }) => [line, value.text])).toEqual([
    [1, "a"],
    [3, "🙂"],
  ]);
});

test.each([
  ['{"text":"a"}\n{"text":\n', ":2: is not JSON"],
  ['{"text":"a"}\n{"texts":"b"}\n', ":2: text is required (a string)"],
  ['{"text":7}\n', ":1: text must be a string, got 7"],
  ['{"text":null}\n', ":1: text must be a string, got null"],
  ['["a"]\n', ":1: the line must be an object, got"],
  ["null\n", ":1: the line must be an object, got null"],
  ["\n\n", ': is empty; give one JSON object {"text": …} a line'],
  [Buffer.from([0x22, 0xff, 0x22]), ": must be UTF-8 text"],
])("%s", async (content, message) => {
  const promise = readJsonLines(file(content), SHAPE, SCHEMA);
  await expect(promise).rejects.toThrow(UsageError);
  await expect(promise).rejects.toThrow(message);
});
