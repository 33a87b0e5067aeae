import { UsageError } from "@astra-rl/base";
import { describe, expect, it } from "vitest";
import { breaking } from "../../base/test/support/breaking.js";
import { ChatTemplate } from "../src/chat-template.js";
import { Tokenizer } from "../src/tokenizer.js";
import { goldenFamilies } from "./golden/families.js";

describe.each(goldenFamilies)("the tokenizer of $name", ({ folder, expected }) => {
  it.each(expected.tokenizer)(
    "equals Python's for $text",
    async ({ text, ids, idsWithSpecials, decoded }) => {
      const tokenizer = await Tokenizer.load(folder);
      expect(tokenizer.encode(text)).toEqual(ids);
      expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual(idsWithSpecials);
      expect(tokenizer.decode(ids)).toBe(decoded);
      expect(tokenizer.decode(idsWithSpecials)).toBe(decoded);
    },
  );
});

describe.each(goldenFamilies.filter(({ expected }) => expected.chat))(
  "the chat template of $name",
  ({ folder, expected }) => {
    it("writes conversations as Python does", async () => {
      const template = ChatTemplate.of(await Tokenizer.load(folder))!;
      for (const { messages, addGenerationPrompt, text } of expected.chat!) {
        expect(template.render(messages, { addGenerationPrompt })).toBe(text);
      }
    });
  },
);

describe("ChatTemplate", () => {
  const make = (settings: unknown) => {
    const encode = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
    const definition = { model: { type: "WordPiece", vocab: { a: 0 }, unk_token: "a" }, added_tokens: [] };
    const rest = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
    return Tokenizer.fromFiles(
      new Map([
        ["tokenizer.json", encode({ ...definition, ...rest })],
        ["tokenizer_config.json", encode(settings)],
      ]),
    );
  };

  it("is null if the checkpoint has none", () => {
    expect(ChatTemplate.of(make({}))).toBeNull();
  });

  it("is read from tokenizer_config.json, alone or by name, and has special tokens and variables", () => {
    const chat_template = "{{ bos_token }}{{ messages[0].content }}{{ mood }}";
    const bos_token = { content: "<a>" };
    const named = [
      { name: "tool_use", template: "x" },
      { name: "default", template: chat_template },
    ];
    for (const given of [chat_template, named]) {
      const template = ChatTemplate.of(make({ chat_template: given, bos_token }))!;
      const messages = [{ role: "user", content: "Hi" }];
      expect(template.render(messages, { variables: { mood: "!" } })).toBe("<a>Hi!");
    }
  });

  it("explains what it cannot use", () => {
    expect(() => ChatTemplate.of(make({ chat_template: 3 }))).toThrow(
      breaking("no-default-template", '"chat_template"'),
    );
    expect(() => ChatTemplate.of(make({ chat_template: "{% if %}" }))).toThrow(
      breaking("malformed-template", '"chat_template"'),
    );
    const strict = ChatTemplate.of(make({ chat_template: "{{ raise_exception('roles must alternate') }}" }))!;
    expect(() => strict.render([])).toThrow(UsageError);
    expect(() => strict.render([])).toThrow(breaking("template-refuses", "roles must alternate"));
  });
});
