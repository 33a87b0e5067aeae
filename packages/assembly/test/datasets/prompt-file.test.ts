import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { UsageError } from "@astra-rl/base";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Conversation } from "@astra-rl/lm";
import { breaking } from "../../../base/test/support/breaking.js";
import {
  checkPrompts,
  parsePrompts,
  promptText,
  readPromptFile,
  type Prompt,
} from "../../src/datasets/index.js";

describe("parsePrompts", () => {
  it("reads JSON arrays, lines and JSON lines", () => {
    expect(parsePrompts('["a", "b\\n"]', "p.json")).toEqual(["a", "b\n"]);
    expect(parsePrompts("first \r\n\n  second\n", "p.TXT")).toEqual(["first ", "  second"]);
    expect(parsePrompts('{"prompt": "a", "id": 3}\n\n"b"\n', "p.jsonl")).toEqual(["a", "b"]);
  });

  it("reads the column prompt of a table, with quotes, commas and line ends in its cells", () => {
    const text = 'id,Prompt \r\n1,"a, ""b""\nc"\r\n\r\n2,plain\n3," d "';
    expect(parsePrompts(text, "p.csv")).toEqual(['a, "b"\nc', "plain", " d "]);
    expect(parsePrompts("prompt\nx", "p.CSV")).toEqual(["x"]);
  });

  it("reads back any strings written as a table", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" }), { minLength: 1 }), (given) => {
        const prompts = given.map((prompt) => `${prompt}x`);
        const rows = prompts.map((prompt) => `1,"${prompt.replaceAll('"', '""')}",2`).join("\r\n");
        expect(parsePrompts(`a,prompt,b\r\n${rows}\r\n`, "p.csv")).toEqual(prompts);
      }),
    );
  });

  it("reads content in text parts as their text", () => {
    const parts = (...texts: string[]) => texts.map((text) => ({ type: "text", text }));
    const messages = [
      { role: "user", content: parts("Hi, ", "you") },
      { role: "assistant", content: parts("Hello") },
      { role: "user", content: "Why?" },
    ];
    const [read] = parsePrompts(JSON.stringify([{ messages }]), "p.json");
    expect((read as Conversation).messages().map(({ from, text }) => `${from}: ${text}`)).toEqual([
      "prompt: ",
      "tester: Hi, you",
      "target: Hello",
      "prompt: Why?",
    ]);
    const one = [{ messages: messages.slice(0, 1) }];
    expect(parsePrompts(JSON.stringify(one), "p.json")).toEqual(["Hi, you"]);
  });

  it("reads lists of messages as conversations, with their speakers", () => {
    const messages = [
      { role: "system", content: "Be kind." },
      { role: "user", content: "Hi" },
      { role: "assistant", content: "Hello!" },
      { role: "user", content: "Tea?" },
    ];
    const [read, text] = parsePrompts(JSON.stringify([{ messages }, "b"]), "p.json");
    const said = (prompt: Prompt | undefined) =>
      (prompt as Conversation).messages().map(({ from, text }) => `${from}: ${text}`);
    expect(said(read)).toEqual(["system: Be kind.", "tester: Hi", "target: Hello!", "prompt: Tea?"]);
    expect(text).toBe("b");
    expect(promptText(read!)).toBe("Be kind.\nHi\nHello!\nTea?");
    const [line] = parsePrompts(JSON.stringify({ messages, id: 1 }), "p.jsonl");
    expect(said(line)).toEqual(said(read));
    // What the assistant said last is continued by the tester; one message of a user is a text like any other.
    const [open] = parsePrompts(JSON.stringify([{ messages: messages.slice(1, 3) }]), "p.json");
    expect(said(open)).toEqual(["prompt: ", "tester: Hi", "target: Hello!"]);
    expect(promptText(open!)).toBe("Hi\nHello!");
    expect(parsePrompts(JSON.stringify([{ messages: messages.slice(1, 2) }]), "p.json")).toEqual(["Hi"]);
  });

  it("reads prompts from the given column", () => {
    expect(parsePrompts("goal,target\nG,T", "p.csv", { column: "goal" })).toEqual(["G"]);
    expect(parsePrompts('{"prompt": "a", "text": "b"}', "p.jsonl", { column: "text" })).toEqual(["b"]);
    expect(parsePrompts('[{"prompt": "a"}, "c"]', "p.json")).toEqual(["a", "c"]);
    const chat = [{ role: "user", content: "Hi" }];
    expect(parsePrompts(JSON.stringify([{ chat, prompt: "a" }]), "p.json", { column: "chat" })).toEqual([
      "Hi",
    ]);
    expect(() => parsePrompts('[{"prompt": "a"}]', "p.json", { column: "text" })).toThrow(
      breaking("invalid-prompt", "p.json"),
    );
    expect(() => parsePrompts("goal,target\nG,T", "p.csv", { column: "x" })).toThrow(
      breaking("missing-column", '"x"'),
    );
  });

  it.each([
    ["p.csv", "", /p\.csv: must begin with a line of headings, one of them "prompt", got an empty file/u],
    ["p.csv", "text,id\na,b", /must have a column "prompt", "messages" or "goal", got "text", "id"/u],
    ["p.csv", "prompt,id\na,b\nc", /p\.csv:3: must have 2 columns like the headings, got 1/u],
    ["p.csv", 'prompt\n"a\nb', /p\.csv:2: quotes must enclose a whole cell/u],
    ["p.csv", 'prompt\na"b', /p\.csv:2: quotes must enclose a whole cell/u],
    ["p.jsonl", '{"messages": []}', /p\.jsonl:1: "messages" must be a list of at least one/u],
    ["p.json", '["a", {"messages": [{"role": "user"}]}]', /prompt 2: message 1 must have a "content"/u],
    ["p.json", '[{"messages": [{"role": "user", "content": []}]}]', /message 1 must have a "content"/u],
    [
      "p.json",
      '[{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]}]',
      /prompt 1: message 1 must have a "content" .* but part 2 is another$/u,
    ],
    ["p.json", '["a", " \\n"]', /p\.json: prompt 2 is empty; give it a text, or leave it out/u],
    ["p.jsonl", '"a"\n{"prompt": ""}', /p\.jsonl: prompt 2 is empty/u],
  ])("refuses %s %j", (name, text, message) => {
    expect(() => parsePrompts(text, name)).toThrow(message);
    expect(() => parsePrompts(text, name)).toThrow(UsageError);
  });

  it("reads back any written strings", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" }), { minLength: 1 }), (given) => {
        const prompts = given.map((prompt) => `${prompt}x`);
        expect(parsePrompts(JSON.stringify(prompts), "p.json")).toEqual(prompts);
        const jsonl = prompts.map((prompt) => JSON.stringify({ prompt })).join("\n");
        expect(parsePrompts(jsonl, "p.jsonl")).toEqual(prompts);
      }),
    );
  });

  it.each([
    ["p.json", "", /p\.json: is empty/u],
    ["p.json", "[]", /p\.json: contains no prompts/u],
    ["p.txt", " \n\n", /p\.txt: contains no prompts/u],
    ["p.jsonl", "", /p\.jsonl: contains no prompts/u],
    ["p.json", '{"a": 1}', /must be an array of strings, got an object/u],
    ["p.json", '["a", 5]', /prompt 2 must be a string, got a number \(5\)/u],
    ["p.json", '["a", null]', /prompt 2 must be a string, got null/u],
    ["p.json", '["a", ["b"]]', /prompt 2 must be a string, got an array/u],
    ["p.json", '["a",\n "b" "c"]', /p\.json:2:6: is not JSON/u],
    ["p.jsonl", '"a"\n{"prompt": 5}', /p\.jsonl:2: .*a prompt that is a number \(5\)/u],
    ["p.jsonl", '"a"\n\n{"text": "b"}', /p\.jsonl:3: .*got an object/u],
    [
      "p.jsonl",
      '{"messages": [{"role": "tool", "content": "42"}]}',
      /p\.jsonl:1: message 1 must have the "role" system, user or assistant, got "tool"; leave other messages out/u,
    ],
    [
      "p.json",
      '[{"messages": [{"role": "user", "content": "a"}, null]}]',
      /prompt 1: message 2 must have a "content"/u,
    ],
    ["p.json", '[{"messages": [{"role": "assistant", "content": " "}]}]', /prompt 1 is empty/u],
    ["p.jsonl", '{"prompt"', /p\.jsonl:1: is not JSON/u],
    ["p.xml", "a", /end in \.json, \.jsonl, \.csv, \.txt, \.parquet or \.arrow, got "\.xml"/u],
  ])("refuses %s with %j", (path, text, message) => {
    expect(() => parsePrompts(text, path)).toThrow(message);
    expect(() => parsePrompts(text, path)).toThrow(UsageError);
  });
});

describe("readPromptFile", () => {
  let folder: string;
  beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), "prompts-"))));
  afterAll(() => rm(folder, { recursive: true }));

  it("reads a file, with or without a byte order mark", async () => {
    const path = join(folder, "prompts.json");
    await writeFile(path, '\uFEFF["héllo 👋"]');
    expect(await readPromptFile(path)).toEqual(["héllo 👋"]);
  });

  const golden = (name: string) => fileURLToPath(new URL(`golden/${name}`, import.meta.url));
  const PROMPTS = ["How are you?", "Grüße — 日本 👋", "two\nlines", "How are you?"];

  it.each(
    ["none", "snappy", "gzip", "zstd"].map((name) => `${name}.parquet`).concat("stream.arrow", "file.arrow"),
  )("reads the columns of %s, as the Python libraries wrote them", async (name) => {
    expect(await readPromptFile(golden(name))).toEqual(PROMPTS);
    expect(await readPromptFile(golden(name), { column: "text" })).toEqual(
      PROMPTS.map((prompt) => prompt.toUpperCase()),
    );
    const talks = await readPromptFile(golden(name), { column: "messages" });
    expect(talks.map(promptText)).toEqual(PROMPTS.map((prompt) => `${prompt}\nFine.`));
    expect((talks[0] as Conversation).messages().map(({ from }) => from)).toEqual([
      "prompt",
      "tester",
      "target",
    ]);
    await expect(readPromptFile(golden(name), { column: "question" })).rejects.toThrow(
      breaking("missing-column", '"question"'),
    );
    await expect(readPromptFile(golden(name), { column: "id" })).rejects.toThrow(
      breaking("invalid-prompt", "prompt 1"),
    );
  });

  it("refuses rows without a prompt, and invalid or damaged files", async () => {
    await expect(readPromptFile(golden("missing.parquet"))).rejects.toThrow(
      breaking("invalid-prompt", "prompt 2"),
    );
    for (const name of ["snappy.parquet", "stream.arrow", "file.arrow"]) {
      const path = join(folder, name);
      const whole = await readFile(golden(name));
      for (const bytes of [Buffer.alloc(0), Buffer.from("hello"), whole.subarray(0, whole.length / 2)]) {
        await writeFile(path, bytes);
        await expect(readPromptFile(path)).rejects.toThrow(UsageError);
      }
    }
  });

  it("names unreadable files", async () => {
    await expect(readPromptFile(join(folder, "none.json"))).rejects.toThrow(
      breaking("file-not-found", "none.json"),
    );
    await expect(readPromptFile(folder)).rejects.toThrow(breaking("file-unreadable", folder));
    const path = join(folder, "latin.txt");
    await writeFile(path, Buffer.from([0x68, 0xe9]));
    await expect(readPromptFile(path)).rejects.toThrow(breaking("not-utf8", path));
    await expect(readPromptFile(path)).rejects.toBeInstanceOf(UsageError);
  });
});

describe("checkPrompts", () => {
  it("accepts a list of strings from any source", () => {
    expect(checkPrompts(["a"], "here")).toEqual(["a"]);
    expect(() => checkPrompts("a", "here")).toThrow(breaking("not-a-list", "here: prompts"));
  });
});
