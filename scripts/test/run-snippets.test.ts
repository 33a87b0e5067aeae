import { expect, test } from "vitest";
import { runnableBlocks } from "../run-snippets.mjs";

test("only marked blocks run, with their line and their code as written", () => {
  const markdown = [
    "# Title",
    "```bash",
    "rm -rf everything",
    "```",
    "```bash run",
    "echo one",
    "",
    "echo two",
    "```",
    "```",
    "```ts run",
    "```",
    "```ts run",
    "console.log(1);",
    "```",
    "```bash run night",
    "sleep 600",
    "```",
  ].join("\n");
  // The bare fence on line 10 opens a block of its own, which line 12 closes: "```ts run" inside it is text.
  expect(runnableBlocks(markdown)).toEqual([
    { language: "bash", code: "echo one\n\necho two\n", line: 5, isOfNight: false },
    { language: "ts", code: "console.log(1);\n", line: 13, isOfNight: false },
    { language: "bash", code: "sleep 600\n", line: 16, isOfNight: true },
  ]);
});

test("a language that nothing here can run is an error", () => {
  expect(() => runnableBlocks("```python run\nprint(1)\n```")).toThrow(
    'line 1: only bash and ts blocks can be run, not "python"',
  );
});
