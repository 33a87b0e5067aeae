import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Conversation, Message, type From } from "../../src/conversation/conversation.js";
import { PlainFormat, type Format, type PlainOptions, type Span } from "../../src/format/format.js";
import { namedCodecs } from "./codecs.js";

const codecs = (await namedCodecs()).filter(({ hears }) => hears !== null);
const [gpt2] = codecs;

const words = fc
  .array(fc.constantFrom("The", " train", " was", "late", ".", " ", "\n", "é", "😀", "東京", ""), {
    maxLength: 5,
  })
  .map((pieces) => pieces.join(""));
const talk = fc
  .tuple(words, fc.array(fc.tuple(fc.constantFrom("tester", "target", "around"), words), { maxLength: 6 }))
  .map(([prompt, others]) =>
    Conversation.of(`x${prompt}`, ...others.map(([from, text]) => new Message(from, text))),
  );
const withSystem = talk.map((conversation) =>
  Conversation.of(new Message("system", "You are terse."), ...conversation.messages()),
);

const options: PlainOptions = {
  labels: { tester: "Bot: ", target: "User: ", system: "# " },
  separator: "\n",
};
const ROLES = ["tester", "target"] as const;

/**
 * The row of a conversation, with each of the model's own messages after its cue, and the positions of the messages.
 */
function layout(format: Format, role: "tester" | "target", conversation: Conversation) {
  const ids: number[] = [];
  const bodies: Span[] = [];
  let before: Conversation | null = null;
  for (const message of conversation.messages()) {
    if (message.from === role) ids.push(...format.cue(before!));
    before = before === null ? Conversation.of(message) : before.append(message);
    const { ids: piece, body } = format.write(before, message.sampled?.ids ?? null);
    bodies.push([ids.length + body[0], ids.length + body[1]]);
    ids.push(...piece);
  }
  return { ids, bodies };
}

describe.each(codecs)("the plain format over $name", ({ codec, tokenizer }) => {
  it("concatenates messages, with nothing between them and the prefix once at the start", () => {
    for (const role of ROLES) {
      const format = new PlainFormat(codec, { role });
      expect(format.pinned).toBe(codec.prefix.length);
      fc.assert(
        fc.property(talk, (conversation) => {
          const { ids, bodies } = layout(format, role, conversation);
          const [first, ...others] = conversation.messages();
          const rest = others.map(({ text }) => text).join("");
          expect(tokenizer.decode(ids)).toBe(codec.heard(first!.text, "begin") + rest);
          const begun = codec.begin(first!.text);
          expect(ids.slice(0, begun.length)).toEqual(begun);
          expect(bodies[0]).toEqual([codec.prefix.length, begun.length]);
          others.forEach(({ text }, at) => {
            expect(bodies[at + 1]![0]).toBe(bodies[at]![1]);
            expect(ids.slice(...bodies[at + 1]!)).toEqual(codec.continue(text));
          });
          expect(bodies.at(-1)![1]).toBe(ids.length);
          expect(format.cue(conversation)).toEqual([]);
        }),
        { numRuns: 40 },
      );
    }
  });

  it("keeps sampled ids unchanged at any position", () => {
    // Two ids, although the tokenizer may have one for the whole word.
    const own = [...codec.continue(" la"), ...codec.continue("te")];
    const plain = new PlainFormat(codec);
    const before = Conversation.of("x");
    const late = new Message("target", " late");
    expect(plain.write(before.append(late), own)).toEqual({ ids: own, body: [0, own.length] });
    const first = plain.write(Conversation.of(" late"), own);
    const pinned = codec.prefix.length;
    expect(first).toEqual({ ids: [...codec.prefix, ...own], body: [pinned, pinned + own.length] });
    const labelled = new PlainFormat(codec, options);
    const label = codec.continue("\nUser: ");
    const span = [label.length, label.length + own.length];
    expect(labelled.write(before.append(late), own)).toEqual({ ids: [...label, ...own], body: span });
    expect(labelled.write(before.append(new Message("tester", " late")), own)).toEqual({
      ids: own,
      body: [0, own.length],
    });
  });

  it("writes labels and separators around messages, whose texts stay unchanged", () => {
    for (const role of ROLES) {
      const format = new PlainFormat(codec, { ...options, role });
      fc.assert(
        fc.property(withSystem, (conversation) => {
          const { ids, bodies } = layout(format, role, conversation);
          const messages = conversation.messages();
          expect(ids.slice(0, codec.prefix.length)).toEqual(codec.prefix);
          let end = codec.prefix.length;
          messages.forEach(({ from, text }, at) => {
            const [begin, next] = bodies[at]!;
            const label = from === "around" ? "" : (options.labels?.[from] ?? "");
            const separator = at === 0 || from === "around" ? "" : "\n";
            const front = ids.slice(end, begin);
            if (at > 0) expect(front).toEqual(codec.continue(separator + label));
            else expect(ids.slice(0, begin)).toEqual(codec.begin(label));
            expect(codec.decode(ids.slice(begin, next))).toBe(text);
            end = next;
          });
          expect(end).toBe(ids.length);
          expect(format.cue(conversation)).toEqual(codec.continue(`\n${options.labels![role]}`));
        }),
        { numRuns: 25 },
      );
    }
  });
});

describe("the plain format", () => {
  it("writes separators between messages, and the model's own label into the cue", () => {
    const { codec } = gpt2!;
    const said = (from: From, text: string) => new Message(from, text);
    const conversation = Conversation.of(
      said("system", "Be brief."),
      said("prompt", "Talk."),
      said("tester", "Hi"),
      said("target", "Why?"),
      said("tester", "So"),
    );
    const upTo = (depth: number) =>
      Conversation.of(...(conversation.messages().slice(0, depth) as [Message]));
    for (const role of ROLES) {
      const format = new PlainFormat(codec, { ...options, role });
      const row = (depth: number) => {
        const read = upTo(depth);
        return codec.decode([...layout(format, role, read).ids, ...format.cue(read)]);
      };
      const cue = role === "tester" ? "\nBot: " : "\nUser: ";
      expect(row(2)).toBe(`# Be brief.\nTalk.${cue}`);
      expect(row(3)).toBe(`# Be brief.\nTalk.\nBot: Hi${cue}`);
      expect(row(4)).toBe(`# Be brief.\nTalk.\nBot: Hi\nUser: Why?${cue}`);
      expect(row(5)).toBe(`# Be brief.\nTalk.\nBot: Hi\nUser: Why?\nBot: So${cue}`);
    }
  });

  it("pins only the prefix, and adds no end ids to the model's own", () => {
    for (const { codec } of codecs) {
      for (const given of [{}, options]) {
        const format = new PlainFormat(codec, given);
        expect([format.pinned, format.endIds]).toEqual([codec.prefix.length, []]);
      }
    }
  });
});
