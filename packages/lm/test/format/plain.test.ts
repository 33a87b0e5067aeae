import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Line } from "../../src/format/conversation-format.js";
import { PlainFormat } from "../../src/format/plain.js";
import { namedCodecs } from "./codecs.js";

const codecs = (await namedCodecs()).filter(({ hears }) => hears !== null);
const [gpt2] = codecs;

const words = fc
  .array(fc.constantFrom("The", " train", " was", "late", ".", " ", "\n", "é", "😀", "東京", ""), {
    maxLength: 5,
  })
  .map((pieces) => pieces.join(""));
const talk = fc
  .tuple(words, fc.array(fc.tuple(words, words), { maxLength: 3 }))
  .map(([opening, turns]): Line[] => [
    { voice: "opening", text: `x${opening}` },
    ...turns.flatMap(([self, other]): Line[] => [
      { voice: "self", text: self },
      { voice: "other", text: other },
    ]),
  ]);
const withSystem = talk.map((lines): Line[] => [{ voice: "system", text: "You are terse." }, ...lines]);

const options = { labels: { self: "Bot: ", other: "User: ", system: "# " }, separator: "\n" };

describe.each(codecs)("the plain format over $name", ({ codec, tokenizer }) => {
  it("writes utterances one after the other, without scaffold, prefix in front", () => {
    fc.assert(
      fc.property(talk, (lines) => {
        const { ids, bodies, pinned } = new PlainFormat(codec).layout(lines);
        expect(tokenizer.decode(ids)).toBe(
          codec.heard(lines[0]!.text, "begin") +
            lines
              .slice(1)
              .map(({ text }) => text)
              .join(""),
        );
        expect(pinned).toBe(codec.prefix.length);
        expect(bodies[0]).toEqual([pinned, codec.begin(lines[0]!.text).length]);
        lines.slice(1).forEach(({ text }, at) => {
          const [from, to] = bodies[at + 1]!;
          expect(ids.slice(from, to)).toEqual(codec.continue(text));
        });
        expect(bodies.at(-1)![1]).toBe(ids.length);
      }),
      { numRuns: 60 },
    );
  });

  it("takes sampled and heard ids as they are", () => {
    const ids = [...codec.continue(" la"), ...codec.continue("te")];
    const format = new PlainFormat(codec);
    const opening: Line = { voice: "opening", text: "x" };
    const piece = format.append([opening], { voice: "other", text: " late", ids });
    expect(piece).toEqual({ ids, body: [0, ids.length] });
    expect(format.layout([{ voice: "self", text: " late", ids }]).ids).toEqual([...codec.prefix, ...ids]);
    expect(format.layout([]).ids).toEqual(codec.prefix);
  });

  it("grows a row as it lays it out, labels and separators as scaffold", () => {
    for (const first of ["self", "other"] as const) {
      const format = new PlainFormat(codec, { ...options, first });
      fc.assert(
        fc.property(withSystem, (lines) => {
          const row: number[] = [];
          lines.forEach((line, at) => {
            const { ids, body } = format.append(lines.slice(0, at), line);
            expect(body[0]).toBeLessThanOrEqual(body[1]);
            row.push(...ids);
          });
          const layout = format.layout(lines);
          expect(layout.ids).toEqual(row);
          lines.forEach(({ text }, at) => expect(codec.decode(row.slice(...layout.bodies[at]!))).toBe(text));
        }),
        { numRuns: 30 },
      );
    }
  });

  it("leaves out the oldest ids where a row is too long, and nothing that is pinned", () => {
    fc.assert(
      fc.property(
        talk,
        withSystem,
        fc.boolean(),
        fc.nat(30),
        fc.nat(5),
        (bare, system, labelled, over, room) => {
          const format = new PlainFormat(codec, labelled ? options : {});
          const lines = labelled ? system : bare;
          const { ids, pinned } = format.layout(lines);
          const window = Math.max(pinned + 12, ids.length - over) + room;
          const fitted = format.fit(lines, window, room);
          const layout = format.layout(fitted);
          expect(layout.ids.length).toBeLessThanOrEqual(window - room);
          if (ids.length <= window - room) expect(fitted).toEqual(lines);
          else if (!labelled) {
            // As sessions drop: exactly what is too much, behind the prefix.
            expect(layout.ids).toEqual([
              ...ids.slice(0, pinned),
              ...ids.slice(ids.length - (window - room) + pinned),
            ]);
          }
          if (labelled) expect(fitted[0]).toMatchObject({ voice: "system", text: "You are terse." });
          expect(layout.ids.slice(0, pinned)).toEqual(ids.slice(0, pinned));
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe("the plain format", () => {
  it("writes what is between lines where it belongs", () => {
    const lines: Line[] = [
      { voice: "system", text: "Be brief." },
      { voice: "opening", text: "Talk." },
      { voice: "self", text: "Hi" },
      { voice: "other", text: "Why?" },
      { voice: "self", text: "So" },
    ];
    const { codec } = gpt2!;
    const tester = new PlainFormat(codec, options);
    expect(codec.decode(tester.layout(lines).ids)).toBe("# Be brief.\nTalk.\nBot: Hi\nUser: Why?\nBot: So");
    expect(codec.decode(tester.layout(lines.slice(0, 2)).ids)).toBe("# Be brief.\nTalk.\nBot: ");
    expect(codec.decode(tester.layout(lines.slice(0, 4)).ids)).toBe(
      "# Be brief.\nTalk.\nBot: Hi\nUser: Why?\nBot: ",
    );
    const target = new PlainFormat(codec, { ...options, first: "other" });
    const seen: Line[] = [lines[1]!, { voice: "other", text: "Hi" }, { voice: "self", text: "Why?" }];
    expect(codec.decode(target.layout(seen.slice(0, 1)).ids)).toBe("Talk.");
    expect(codec.decode(target.layout(seen.slice(0, 2)).ids)).toBe("Talk.\nUser: Hi\nBot: ");
    expect(codec.decode(target.layout(seen).ids)).toBe("Talk.\nUser: Hi\nBot: Why?");
    expect(tester.layout(lines).pinned).toBe(codec.begin("# Be brief.").length);
  });

  it("refuses a window that does not hold what is pinned", () => {
    const format = new PlainFormat(gpt2!.codec);
    const lines: Line[] = [{ voice: "system", text: "Be very brief." }];
    expect(() => format.fit(lines, 6, 4)).toThrow(
      /may not be dropped and 4 more do not fit the model's window of 6/,
    );
  });
});
