import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { UsageError } from "@astra-rl/base";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { breaking } from "../../../base/test/support/breaking.js";
import { rounds } from "../../../../scripts/rounds.js";
import { ChatTemplate } from "../../src/chat-template.js";
import { Conversation, Message } from "../../src/conversation/conversation.js";
import { ChatFormat, type ChatOptions } from "../../src/format/chat.js";
import { Codec } from "../../src/format/codec.js";
import type { Format, Row } from "../../src/format/format.js";
import { Tokenizer } from "../../src/tokenizer.js";
import { folderOf, namedCodecs, varied } from "./codecs.js";

interface Case {
  template: string;
  family: string;
  added: Record<string, number>;
  bos: string;
  eos: string;
  rows: { turns: number; system: boolean; thought: boolean; thinking?: true; ids: number[] }[];
}
const golden = (name: string) => new URL(`../golden/${name}`, import.meta.url);
const { system, users, answers, cases } = JSON.parse(
  gunzipSync(readFileSync(golden("chat-templates-expected.json.gz"))).toString(),
) as { system: string; users: string[]; answers: string[]; cases: Case[] };
const sourceOf = (template: string) => readFileSync(golden(`chat-templates/${template}.jinja`), "utf8");
const DATE = new Date(2026, 1, 3);

/** A golden tokenizer with a chat template and the special tokens that it writes. */
function tokenizerWith({ family, added, bos, eos, template }: Case): Tokenizer {
  return varied(folderOf(family), (definition, settings) => {
    const tokens = definition["added_tokens"] as unknown[];
    const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
    for (const [content, id] of Object.entries(added)) tokens.push({ id, content, ...flags });
    Object.assign(settings, { bos_token: bos, eos_token: eos, chat_template: sourceOf(template) });
  });
}

function formatWith(tokenizer: Tokenizer, options: ChatOptions): ChatFormat {
  return new ChatFormat(Codec.of(tokenizer), ChatTemplate.of(tokenizer)!, { date: DATE, ...options });
}

/** The row of a conversation with the cue, laid out at once or message by message, and its pieces. */
function rowOf(format: Format, role: "tester" | "target", conversation: Conversation): Row {
  const own = (message: Message) => message.sampled?.ids ?? null;
  const cue = { ids: format.cue(conversation), body: [0, 0] } as const;
  if (format.layout !== undefined) return [...format.layout(conversation, own), cue];
  const row: { ids: readonly number[]; body: readonly [number, number] }[] = [];
  let before: Conversation | null = null;
  for (const message of conversation.messages()) {
    const led = message.from === role && before !== null ? format.cue(before) : [];
    before = before === null ? Conversation.of(message) : before.append(message);
    const { ids, body } = format.write(before, own(message));
    row.push({ ids: [...led, ...ids], body: [led.length + body[0], led.length + body[1]] });
  }
  return [...row, cue];
}
const none = () => null;
const idsIn = (row: Row) => row.flatMap(({ ids }) => ids);

/** A conversation from one side: user and assistant alternate, starting with the user. */
function talk(self: "tester" | "target", texts: readonly string[]): Conversation {
  const other = self === "tester" ? "target" : "tester";
  const [first, ...rest] = texts.map((text, at) => new Message(at % 2 === 0 ? other : self, text));
  // The tester's first user message is the prompt.
  if (self === "tester") return Conversation.of(first!.text, ...rest);
  return Conversation.of("", first!, ...rest);
}

const textsOf = (turns: number, thought: boolean) =>
  Array.from({ length: 2 * turns - 1 }, (_, at) => {
    if (at % 2 === 0) return users[at / 2]!;
    const answer = answers[(at - 1) / 2]!;
    return thought ? `<think>\nHm, ${(at - 1) / 2}.\n</think>\n\n${answer}` : answer;
  });

/** Templates that write a message differently once others follow it. */
const REWRITTEN = ["thinking", "always-thinking", "inst-last-system"];

describe.each(cases)("the chat template $template with the tokenizer of $family", (given) => {
  const tokenizer = tokenizerWith(given);
  const codec = Codec.of(tokenizer);

  it.each(["target", "tester"] as const)("gives the %s the ids of apply_chat_template", (role) => {
    for (const row of given.rows) {
      const thinking = row.thinking ?? false;
      const options = { role, thinking, ...(row.system ? { system } : {}) };
      const conversation = talk(role, textsOf(row.turns, row.thought));
      const anew = rowOf(formatWith(tokenizer, { ...options, history: "template" }), role, conversation);
      expect(idsIn(anew)).toEqual(row.ids);
      if (REWRITTEN.includes(given.template)) continue;
      const verbatim = formatWith(tokenizer, { ...options, history: "verbatim" });
      expect(idsIn(rowOf(verbatim, role, conversation))).toEqual(row.ids);
    }
  });

  it("locates each content, and begins each prompt with the ids that were read and sampled before", () => {
    const format = formatWith(tokenizer, { role: "target", history: "verbatim" });
    const texts = textsOf(4, false);
    let sofar: readonly number[] = [];
    for (const length of [1, 3, 5, 7]) {
      const conversation = talk("target", texts.slice(0, length));
      const row = rowOf(format, "target", conversation);
      const ids = idsIn(row);
      expect(ids.slice(0, sofar.length)).toEqual(sofar);
      const answer = texts[length];
      const own = new Message("target", answer ?? "");
      sofar = answer === undefined ? ids : [...ids, ...format.write(conversation.append(own), null).ids];
      const said = row.slice(1, -1).map(({ ids: all, body }) => {
        // Some templates write a space before contents, and some tokenizers add one after special tokens.
        return codec.decode(all.slice(...body)).trimStart();
      });
      expect(said).toEqual(texts.slice(0, length));
    }
  });

  it("keeps the system prompt, and drops whole exchanges, the oldest first, then the beginning of the last message", () => {
    for (const history of ["template", "verbatim"] as const) {
      const format = formatWith(tokenizer, { role: "target", history, system });
      const texts = textsOf(5, false);
      const row = rowOf(format, "target", talk("target", texts));
      const shorter = rowOf(format, "target", talk("target", texts.slice(4)));
      const drops = given.template === "thinking" && history === "verbatim" ? null : idsIn(shorter);
      const room = idsIn(shorter).length;
      if (drops !== null && !REWRITTEN.includes(given.template)) {
        expect(idsIn(format.truncate(talk("target", texts), row, room, none))).toEqual(drops);
        expect(idsIn(format.truncate(talk("target", texts), row, room + 3, none))).toEqual(drops);
      }
      const [one] = users;
      const single = talk("target", [one!]);
      const whole = rowOf(format, "target", single);
      const cut = format.truncate(single, whole, idsIn(whole).length - 1, none);
      const [start, end] = whole[1]!.body;
      const front = whole[1]!.ids.slice(0, start);
      expect(idsIn(cut)).toEqual([
        ...whole[0]!.ids,
        ...front,
        ...whole[1]!.ids.slice(start + 1, end),
        ...format.cue(single),
      ]);
      expect(() => format.truncate(single, whole, 1, none)).toThrow(UsageError);
    }
  });
});

describe("the chat format", () => {
  const chatml = cases.find(({ template, family }) => template === "chatml" && family === "qwen3")!;
  const tokenizer = tokenizerWith(chatml);
  const codec = Codec.of(tokenizer);
  const textOf = (format: Format, role: "tester" | "target", conversation: Conversation) =>
    codec.decode(idsIn(rowOf(format, role, conversation)), { skipSpecialTokens: false });

  it("makes the prompt the first user message for the tester, and joins it with the first probe for the target", () => {
    const conversation = Conversation.of(
      "We talk.",
      new Message("tester", "Hi"),
      new Message("target", "Yes?"),
    );
    expect(textOf(formatWith(tokenizer, { role: "tester" }), "tester", conversation)).toBe(
      "<|im_start|>user\nWe talk.<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n" +
        "<|im_start|>user\nYes?<|im_end|>\n<|im_start|>assistant\n",
    );
    const asked = conversation.append(new Message("tester", "No."));
    expect(textOf(formatWith(tokenizer, { role: "target", system: "Be kind." }), "target", asked)).toBe(
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWe talk.\n\nHi<|im_end|>\n" +
        "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nNo.<|im_end|>\n<|im_start|>assistant\n",
    );
  });

  it("uses a conversation's own system message, and treats context around a message as part of it", () => {
    const conversation = Conversation.of(
      new Message("system", "Be rude."),
      new Message("tester", "Hi"),
      new Message("around", " (shouted)"),
    );
    for (const history of ["template", "verbatim"] as const) {
      const format = formatWith(tokenizer, { role: "target", system: "Be kind.", history });
      expect(textOf(format, "target", conversation)).toBe(
        "<|im_start|>system\nBe rude.<|im_end|>\n<|im_start|>user\nHi (shouted)<|im_end|>\n<|im_start|>assistant\n",
      );
      const self = formatWith(tokenizer, { role: "tester", history });
      expect(textOf(self, "tester", Conversation.of(new Message("system", "Be rude.")))).toBe(
        // It addresses the model under test; the tester keeps its own.
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n",
      );
    }
  });

  it("ends generations at the template's end-of-turn token", () => {
    const ended = (template: string) => {
      const given = cases.find((each) => each.template === template && each.family === "qwen3")!;
      const made = tokenizerWith(given);
      return formatWith(made, { role: "target" }).endIds.map((id) =>
        made.decode([id], { skipSpecialTokens: false }),
      );
    };
    expect(ended("chatml")).toEqual(["<|im_end|>"]);
    expect(ended("headers-trim")).toEqual(["<|eot_id|>"]);
    expect(ended("turns-no-system")).toEqual(["<end_of_turn>"]);
    expect(ended("role-tokens")).toEqual(["<|end|>"]);
  });

  it("places sampled ids directly after the cue, even if the template writes a space there in earlier messages", () => {
    const given = cases.find((each) => each.template === "inst-sys" && each.family === "qwen3")!;
    const made = tokenizerWith(given);
    const ids = Codec.of(made).continue("Because.");
    const conversation = talk("tester", ["Why?"]);
    for (const [history, front] of [
      ["verbatim", []],
      ["template", Codec.of(made).continue(" ")],
    ] as const) {
      const format = formatWith(made, { role: "tester", history });
      const said = new Message("tester", "Because.");
      const piece = format.layout?.(conversation.append(said), ({ from }) =>
        from === "tester" ? ids : null,
      );
      expect(format.write(conversation.append(said), ids).ids).toEqual(ids);
      if (piece === undefined) expect(front).toEqual([]);
      else expect(piece[1]!.ids.slice(-ids.length - 1)).toEqual([...front, ...ids]);
    }
  });

  it.each([
    ["thinking", ""],
    ["always-thinking", "\n\n"],
  ])(
    "omits earlier reasoning as the template %s does, keeping the sampled ids of the answer",
    (name, space) => {
      const given = cases.find((each) => each.template === name && each.family === "qwen3")!;
      const thinking = tokenizerWith(given);
      const own = Codec.of(thinking);
      // Two ids, although the tokenizer may have one for the whole word.
      const answer = [...own.continue("la"), ...own.continue("te")];
      const ids = [...own.continue("<think>\nHm.\n</think>\n\n"), ...answer];
      const said = new Message("target", own.decode(ids, { skipSpecialTokens: false }), {
        by: "target",
        tokens: thinking.fingerprint,
        ids,
        kept: ids.length,
        logprobs: ids.map(() => -1),
        finished: "length",
        after: Conversation.of("x"),
      });
      const conversation = Conversation.of(
        "",
        new Message("tester", "Hi"),
        said,
        new Message("tester", "So?"),
      );
      const anew = rowOf(formatWith(thinking, { role: "target" }), "target", conversation);
      expect(anew[2]!.ids.slice(...anew[2]!.body)).toEqual([...own.continue(space), ...answer]);
      const verbatim = formatWith(thinking, { role: "target", history: "verbatim" });
      const kept = rowOf(verbatim, "target", conversation);
      expect(kept[2]!.ids.slice(...kept[2]!.body)).toEqual(ids);
    },
  );

  it("refuses, with its name, a template that omits, repeats or changes contents", () => {
    for (const source of [
      "{% for message in messages %}{{ message.role }}{% endfor %}",
      "{% for message in messages %}{{ message.content + message.content }}{% endfor %}",
      "{% for message in messages %}{{ message.content | upper }}{% endfor %}",
    ]) {
      const files = new Map(tokenizer.directoryFiles).set(
        "chat_template.jinja",
        new TextEncoder().encode(source),
      );
      const changed = Tokenizer.fromFiles(files, "folder");
      expect(() => formatWith(changed, { role: "target" })).toThrow(
        breaking("template-alters-content", "chat_template.jinja"),
      );
    }
  });
});

const words = fc
  .array(fc.constantFrom("The", " train", " was", "late", ".", " ", "\n", "é", "😀", "東京"), {
    minLength: 1,
    maxLength: 5,
  })
  .map((pieces) => pieces.join(""));

describe.each((await namedCodecs()).filter(({ hears }) => hears !== null))(
  "with the tokenizer $name",
  ({ tokenizer: plain, codec, hears }) => {
    const source =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    const files = new Map(plain.directoryFiles).set("chat_template.jinja", new TextEncoder().encode(source));
    const template = ChatTemplate.of(Tokenizer.fromFiles(files, "folder"))!;

    it("rows of any conversation decode to the template's output", () => {
      fc.assert(
        fc.property(
          fc.array(words, { minLength: 1, maxLength: 6 }),
          fc.constantFrom("template", "verbatim"),
          (texts, history) => {
            const conversation = talk("target", texts);
            const format = new ChatFormat(codec, template, {
              role: "target",
              history: history as "verbatim",
            });
            const messages = texts.map((content, at) => ({
              role: at % 2 === 0 ? "user" : "assistant",
              content,
            }));
            const text = template.render(messages, { addGenerationPrompt: true });
            const last = texts.length % 2 === 0 ? "" : "[assistant]";
            const written = last === "" ? text.replace(/\[assistant\]$/u, "") : text;
            const ids = idsIn(rowOf(format, "target", conversation));
            // Some tokenizers add a space to the first text of a row.
            const options = { skipSpecialTokens: false, cleanUpSpaces: false };
            const begun = plain.decode(plain.encode("[user]"), options);
            const front = begun.slice(0, begun.indexOf("["));
            expect(plain.decode(ids, options)).toBe(front + hears!(written));
          },
        ),
        { numRuns: rounds(8, 30) },
      );
    });
  },
);
