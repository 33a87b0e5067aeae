import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { StopDetector, type TokenDecoder } from "../../src/generation/stop.js";

/** Token i is the i-th of these byte strings; tokens may end within a character. The last is special. */
const bytes = [
  "a",
  "b",
  "\n",
  "\n\n",
  ".\n",
  "\nUser",
  ":",
  "User:",
  "日",
  Uint8Array.of(0xf0, 0x9f),
  Uint8Array.of(0x94, 0xa5),
  "",
].map((piece) => (typeof piece === "string" ? new TextEncoder().encode(piece) : piece));
const [a, b, line, lines, dotLine, lineUser, colon, user, sun, fireStart, fireEnd, special] = bytes.map(
  (_, id) => id,
) as number[] as [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
];

const tokenizer: TokenDecoder = {
  decode: (ids) => new TextDecoder().decode(Uint8Array.from(ids.flatMap((id) => [...bytes[id]!]))),
};

/** Feeds ids one by one, like decoding. */
function run(ids: readonly number[], stops: readonly string[]) {
  const detector = new StopDetector(tokenizer, stops);
  for (let count = 1; count <= ids.length; count += 1) {
    const cut = detector.find(ids.slice(0, count));
    if (cut !== null) return { ...cut, heard: count };
  }
  return null;
}

describe("StopDetector", () => {
  it("cuts before a stop string that is a token", () => {
    expect(run([a, b, line, a], ["\n"])).toEqual({ kept: 2, text: "ab", heard: 3 });
  });

  it("finds a stop string across token boundaries, at the token that completes it", () => {
    expect(run([a, line, user, b], ["\nUser:"])).toEqual({ kept: 1, text: "a", heard: 3 });
    expect(run([a, lineUser, b, lineUser, colon, b], ["\nUser:"])).toEqual({
      kept: 3,
      text: "a\nUserb",
      heard: 5,
    });
  });

  it("drops a whole token that contains the start of the stop string and text before it", () => {
    expect(run([a, dotLine, b], ["\n"])).toEqual({ kept: 1, text: "a", heard: 2 });
    expect(run([a, dotLine, line], ["\n\n"])).toEqual({ kept: 1, text: "a", heard: 3 });
    expect(run([dotLine], ["\n"])).toEqual({ kept: 0, text: "", heard: 1 });
  });

  it("cuts at the earliest of several stop strings", () => {
    expect(run([a, lines], ["\n\n", "\n"])).toEqual({ kept: 1, text: "a", heard: 2 });
    expect(run([a, b, lineUser, colon], ["User:", "\nUser:"])).toEqual({ kept: 2, text: "ab", heard: 4 });
  });

  it("keeps characters of several tokens whole", () => {
    expect(run([a, fireStart, fireEnd, line], ["\n"])).toEqual({ kept: 3, text: "a🔥", heard: 4 });
    expect(run([a, fireStart, fireEnd, b], ["🔥"])).toEqual({ kept: 1, text: "a", heard: 3 });
    expect(run([sun, a, sun, b], ["a日"])).toEqual({ kept: 1, text: "日", heard: 3 });
  });

  it("keeps tokens without text before the stop string, finds it across them, and handles texts without it", () => {
    expect(run([a, special, line], ["\n"])).toEqual({ kept: 2, text: "a", heard: 3 });
    const silent = Array.from({ length: 200 }, () => special);
    expect(run([a, lineUser, ...silent, colon], ["\nUser:"])).toEqual({ kept: 1, text: "a", heard: 203 });
    expect(run([a, b, b], ["\n"])).toBeNull();
    expect(run([a, line], [])).toBeNull();
  });

  it("always keeps the longest run of ids that decodes to a text before the stop string", () => {
    const token = fc.integer({ min: 0, max: bytes.length - 1 });
    const stop = fc.constantFrom("\n", "\n\n", "\nUser:", "ab", "🔥", "日\n", "b.");
    fc.assert(
      fc.property(
        fc.array(token, { maxLength: 40 }),
        fc.uniqueArray(stop, { minLength: 1, maxLength: 3 }),
        (ids, stops) => {
          const cut = run(ids, stops);
          const hit = (text: string) => stops.map((each) => text.indexOf(each)).filter((at) => at >= 0);
          if (cut === null) {
            expect(hit(tokenizer.decode(ids))).toEqual([]);
            return;
          }
          const text = tokenizer.decode(ids.slice(0, cut.heard));
          const at = Math.min(...hit(text));
          expect(hit(tokenizer.decode(ids.slice(0, cut.heard - 1)))).toEqual([]);
          expect(tokenizer.decode(ids.slice(0, cut.kept))).toBe(cut.text);
          expect(text.slice(0, at).startsWith(cut.text)).toBe(true);
          for (let longer = cut.kept + 1; longer <= cut.heard; longer += 1) {
            const other = tokenizer.decode(ids.slice(0, longer));
            expect(other.length <= at && text.startsWith(other)).toBe(false);
          }
        },
      ),
      { numRuns: 2000, seed: 1 },
    );
  });

  it("within tokens, keeps the text up to the stop string, and the tokens that begin before it", () => {
    const cut = (ids: readonly number[], stops: readonly string[]) =>
      new StopDetector(tokenizer, stops, { withinTokens: true }).find(ids);
    expect(cut([a, dotLine], ["\n"])).toEqual({ kept: 2, text: "a." });
    expect(cut([a, user], ["er"])).toEqual({ kept: 2, text: "aUs" });
    expect(cut([a, line], ["\n"])).toEqual({ kept: 1, text: "a" });
    expect(cut([fireStart, fireEnd, line], ["\n"])).toEqual({ kept: 2, text: "🔥" });
    expect(cut([user], ["U"])).toEqual({ kept: 0, text: "" });
  });
});
