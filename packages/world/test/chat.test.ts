import { fileURLToPath } from "node:url";
import { ChatTemplate, Tokenizer } from "@astra-rl/lm";
import { expect, it } from "vitest";
import { SeededStream } from "../src/seeded-stream.js";
import { splitOpeningLines } from "../src/training/opening-lines.js";
import { CHAT_TEMPLATE, chatConversationText } from "../src/training/chat-conversation.js";
import { END_OF_TEXT } from "../src/training/train-tokenizer.js";

const CHAT = fileURLToPath(new URL("../../assembly/world/chat", import.meta.url));

it("the chat model predicts conversations in its own template, from both sides", async () => {
  const template = ChatTemplate.of(await Tokenizer.load(CHAT))!;
  const splits = new SeededStream(1, "world/splits");
  const lines = splitOpeningLines(() => splits.uniform()).train;
  const stream = new SeededStream(2, "chat");
  const sides = new Set<boolean>();
  for (let drawn = 0; drawn < 40; drawn++) {
    const text = chatConversationText(() => stream.uniform(), lines);
    const messages = text
      .split(END_OF_TEXT)
      .slice(0, -1)
      .map((part) => {
        const at = part.indexOf("\n");
        return { role: part.slice(0, at), content: part.slice(at + 1) };
      });
    expect(template.render(messages)).toBe(text);
    sides.add(messages[0]!.content.includes("\n\n\n"));
  }
  expect(sides).toEqual(new Set([true, false]));
  expect(CHAT_TEMPLATE).toContain("eos_token");
});
