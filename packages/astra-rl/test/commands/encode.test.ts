import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { liveTensors } from "@astra-rl/torch";
import { describe, expect, test } from "vitest";
import { goldenCausal } from "../../../lm/test/golden/families.js";
import { runCommand, temporaryFolder } from "../support/run-command.js";

const { path } = temporaryFolder();
const { rows: chats } = JSON.parse(
  readFileSync(new URL("../../../lm/test/golden/chat-ids-expected.json", import.meta.url), "utf8"),
) as { rows: { family: string; messages: object[]; ids: number[] }[] };

const encode = (folder: string, rows: readonly object[]) => {
  writeFileSync(path("texts.jsonl"), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  return runCommand("encode", "--model", folder, "--input", path("texts.jsonl"), "--quiet");
};
const folderOf = (family: string) => goldenCausal.find(({ name }) => name === family)!.folder;

describe("astra-rl encode", () => {
  test.each(goldenCausal)("gives the ids of Python's tokenizer: $name", async ({ folder, expected }) => {
    const result = await encode(
      folder,
      expected.tokenizer.map(({ text }) => ({ text })),
    );
    expect(result).toMatchObject({ code: 0, err: "" });
    const rows = result.json<{ ids: number[] }>();
    expect(rows).toEqual(expected.tokenizer.map(({ idsWithSpecials: ids }) => ({ ids })));
  });

  test.each([...new Set(chats.map(({ family }) => family))])(
    "gives the ids of Python's chat template, with the beginning of an answer: %s",
    async (family) => {
      const own = chats.filter((chat) => chat.family === family);
      const [text] = goldenCausal.find(({ name }) => name === family)!.expected.tokenizer;
      // Texts and conversations may take turns.
      const given = own.flatMap(({ messages }) => [{ messages }, { text: text!.text }]);
      const result = await encode(folderOf(family), given);
      expect(result).toMatchObject({ code: 0 });
      expect(result.json()).toEqual(own.flatMap(({ ids }) => [{ ids }, { ids: text!.idsWithSpecials }]));
    },
  );

  test("loads no weights", async () => {
    const live = liveTensors();
    cpSync(folderOf("qwen2"), path("model"), { recursive: true });
    for (const name of ["model.safetensors", "config.json"]) rmSync(path(`model/${name}`));
    expect(await encode(path("model"), [{ text: "x" }])).toMatchObject({ code: 0 });
    expect(liveTensors()).toBe(live);
  });

  test.each<[string, object, RegExp]>([
    ["neither", {}, /texts\.jsonl:1: the line must have either "text" or "messages"/],
    [
      "both",
      { text: "a", messages: [{ role: "user", content: "b" }] },
      /texts\.jsonl:1: the line must have either "text" or "messages"/,
    ],
    ["a number", { text: 3 }, /texts\.jsonl:1: text must be a string, got 3/],
    ["a list", [], /texts\.jsonl:1: the line must be an object, got/],
    ["no messages", { messages: [] }, /texts\.jsonl:1: messages must be an array that is not empty, got/],
    [
      "a message without content",
      { messages: [{ role: "user", content: "a" }, { role: "user" }] },
      /texts\.jsonl:1: messages\[1\]\.content is required/,
    ],
    [
      "a number as content",
      { messages: [{ role: "user", content: 3 }] },
      /texts\.jsonl:1: messages\[0\]\.content must be a string, or a list of parts \{type: text, text\}, got 3/,
    ],
    [
      "an image",
      { messages: [{ role: "user", content: [{ type: "image", url: "x" }] }] },
      /texts\.jsonl:1: messages\[0\]\.content\[0\]\.type must be "text", got "image"/,
    ],
    [
      "messages where there is no template",
      { messages: [{ role: "user", content: "a" }] },
      /qwen2: "messages" need a chat template, but neither/,
    ],
  ])("explains a line with %s", async (_, row, message) => {
    const { code, err, out } = await encode(folderOf("qwen2"), [row]);
    expect(err).toMatch(message);
    expect({ code, out }).toEqual({ code: 2, out: "" });
  });
});
