import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Pattern, PatternError } from "../src/tokenizer/pattern.js";

/** Matches of JavaScript's engine, in the same form. */
function reference(source: string, text: string): number[] {
  return [...text.matchAll(new RegExp(source, "gu"))].flatMap(({ index, 0: match }) => [
    index,
    index + match.length,
  ]);
}

/** Patterns of few letters, so that they often match; those that both engines must read alike. */
const { pattern } = fc.letrec<{ pattern: string; part: string; atom: string }>((tie) => ({
  atom: fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom("a", "b", "c", "🔥", "é") },
    fc.constantFrom("[ab]", "[^a]", "[^ab🔥]", "\\n"),
    tie("pattern").map((inner) => `(?:${inner})`),
  ),
  part: fc
    .tuple(
      tie("atom"),
      fc.constantFrom("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}", "{1,2}?"),
    )
    .map((both) => both.join("")),
  pattern: fc
    .array(
      fc
        .tuple(
          fc.array(tie("part"), { minLength: 1, maxLength: 4 }),
          fc.constantFrom("", "", "", "(?!a)", "(?=b|ca)", "(?![ab]c)"),
        )
        .map(([parts, look]) => parts.join("") + look),
      { minLength: 1, maxLength: 3 },
    )
    .map((options) => options.join("|")),
}));
const text = fc
  .array(fc.constantFrom("a", "a", "a", "b", "b", "c", "🔥", "é", "\n"), { maxLength: 40 })
  .map((letters) => letters.join(""));

describe("Pattern", () => {
  it("matches as JavaScript's engine does, whatever the pattern", () => {
    let compared = 0;
    fc.assert(
      fc.property(pattern, fc.array(text, { minLength: 5, maxLength: 5 }), (source, texts) => {
        let made: Pattern;
        try {
          made = new Pattern(source);
        } catch (error) {
          expect(error).toBeInstanceOf(PatternError);
          return;
        }
        compared++;
        for (const given of texts) expect(made.matches(given)).toEqual(reference(source, given));
      }),
      { numRuns: 2000 },
    );
    // Some are refused, because they match the empty text.
    expect(compared).toBeGreaterThan(500);
  });

  const known = [
    String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
    String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
    String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  ];
  it.each(known)("gives the same with either engine for a pattern that it knows: %s", (source) => {
    // A group around it is another pattern in spelling, so the machine takes it.
    const [native, machine] = [new Pattern(source), new Pattern(`(?:${source})`)];
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(
            fc.string({ unit: "grapheme" }),
            fc.constantFrom(" ", "\n", "  ", "'S", "AbC", "12345", "\u0085"),
          ),
          { maxLength: 20 },
        ),
        (parts) => {
          const given = parts.join("");
          expect(native.matches(given)).toEqual(machine.matches(given));
        },
      ),
      { numRuns: 300 },
    );
  });

  // Each of these takes a backtracking engine longer than anybody waits. Time is asked of the process, which other work
  // on the machine does not change; the bound is far above what linear work takes, and far below anything else.
  it.each([
    ["(a+)+b", "a".repeat(50_000)],
    ["(?:a|a)*b", "a".repeat(50_000)],
    ["(?:a|aa)+b", "a".repeat(50_000)],
    ["(?:a*a)*b", "a".repeat(50_000)],
    ["(x+x+)+y", "x".repeat(50_000)],
    [String.raw`\s*x`, " ".repeat(50_000)],
    ["b*c|b", "b".repeat(50_000)],
    ["(?:a+?b?)+c", "aab".repeat(20_000)],
    ["a++b|a", "a".repeat(50_000)],
    [".*.*.*=.*", "x".repeat(20_000)],
    ["(?:[ab]+[bc]*)?a+d", "abc".repeat(10_000)],
    [String.raw`^(?:\w+\s?)+$|x`, `${"word ".repeat(10_000)}!`],
  ])("takes time linear in the text: %s", (source, given) => {
    const made = new Pattern(source);
    const started = process.cpuUsage();
    made.matches(given);
    const { user, system } = process.cpuUsage(started);
    expect((user + system) / 1e6).toBeLessThan(5);
  });

  it.each([
    ["a*", /empty text/],
    ["(?:a?)+", /can be empty cannot be repeated/],
    ["(a", /"\)" is missing/],
    ["a)", /"\)" without "\("/],
    ["*a", /nothing before it/],
    ["[a", /ends too early/],
    ["[]", /ends too early|empty part/],
    ["[z-a]", /range/],
    [String.raw`(a)\1`, /"\\1" is not supported/],
    ["(?<=a)b", /groups of this kind/],
    ["(?>a)b", /groups of this kind/],
    ["(?i)a", /groups of this kind/],
    ["a(?!b+)", /look-ahead/],
    ["[[:alpha:]]", /\[:…:\]/],
    [String.raw`\p{Cherokee}`, /property Cherokee/],
    [String.raw`\bword`, /"\\b" is not supported/],
    ["(?i:ss)", /fold/],
    ["(?i:é)", /ASCII letters/],
    ["(?:a{1,50}){1,50}", /too large|too many/],
    ["(".repeat(200) + "a" + ")".repeat(200), /deep/],
  ])("refuses what it might read otherwise than Python: %s", (source, message) => {
    expect(() => new Pattern(source)).toThrow(PatternError);
    expect(() => new Pattern(source)).toThrow(message);
  });
});
