import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Line } from "../../src/core/index.js";
import { align, type Utterance } from "../../src/system/align.js";

const opening = (text: string): Line => ({ voice: "opening", text, ids: [1] });
const self = (text: string, ...ids: number[]): Line => ({ voice: "self", text, ids });
const other = (text: string, ...ids: number[]): Utterance => ({ voice: "other", text, ids });
const scaffold = (text: string): Line => ({ voice: "other", text, scaffold: true });

describe("align", () => {
  it("keeps all lines and adds the utterance with its ids where the text is what was said", () => {
    const lines = [opening("Hello. "), self("Hi. ", 2, 3)];
    expect(align(lines, "Hello. Hi. Yes. ", [other("Yes. ", 4)])).toEqual({
      kept: 2,
      added: [other("Yes. ", 4)],
      whole: true,
    });
    expect(align(lines, "Hello. Hi. ", [])).toEqual({ kept: 2, added: [], whole: true });
  });

  it("takes what stands around an utterance for scaffold", () => {
    expect(align([opening("Hello. ")], "Hello. <Yes.>", [other("Yes.", 4)])).toEqual({
      kept: 1,
      added: [scaffold("<"), other("Yes.", 4), scaffold(">")],
      whole: true,
    });
    const two = align([opening("A")], "A: p, r!", [{ voice: "self", text: "p", ids: [5] }, other("r", 6)]);
    expect(two.added).toEqual([scaffold(": "), self("p", 5), scaffold(", "), other("r", 6), scaffold("!")]);
  });

  it("keeps the lines that still stand, and says that others do not", () => {
    const lines = [opening("Hello. "), self("Hi. ", 2)];
    expect(align(lines, "Hello. Changed. Yes.", [other("Yes.", 4)])).toEqual({
      kept: 1,
      added: [scaffold("Changed. "), other("Yes.", 4)],
      whole: false,
    });
    expect(align(lines, "Something else.", [other("Yes.", 4)])).toEqual({
      kept: 0,
      added: [{ voice: "opening", text: "Something else." }],
      whole: false,
    });
  });

  it("opens with what precedes the utterance where no line stands", () => {
    expect(align([opening("Hello. ")], "Be kind. Hello. Yes.", [other("Yes.", 4)])).toEqual({
      kept: 0,
      added: [{ voice: "opening", text: "Be kind. Hello. " }, other("Yes.", 4)],
      whole: false,
    });
  });

  it("finds an utterance that the context holds too at the end, and an empty one anywhere", () => {
    expect(align([opening("a a ")], "a a a", [other("a", 4)]).added).toEqual([other("a", 4)]);
    expect(align([opening("a ")], "a ", [other("")]).added).toEqual([other("")]);
  });

  it("says exactly the text, whatever the lines, the text and the utterances", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "b", " "), maxLength: 6 });
    fc.assert(
      fc.property(fc.array(text, { maxLength: 4 }), text, fc.array(text, { maxLength: 3 }), (said, all, expected) => {
        const lines = said.map((line): Line => ({ voice: "other", text: line }));
        const { kept, added } = align(lines, all, expected.map((line) => other(line)));
        expect([...lines.slice(0, kept), ...added].map((line) => line.text).join("")).toBe(all);
      }),
    );
  });
});
