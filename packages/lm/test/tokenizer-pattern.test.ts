import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { rounds } from "../../../scripts/rounds.js";
import { Pattern } from "../src/tokenizer/pattern.js";

class PatternError extends Error {}
const patternOf = (source: string) => new Pattern(source, (why) => new PatternError(why));

/** Matches of JavaScript's engine, in the same form. */
function reference(source: string, text: string): number[] {
  return [...text.matchAll(new RegExp(source, "gu"))].flatMap(({ index, 0: match }) => [
    index,
    index + match.length,
  ]);
}

/** Patterns of few letters, so that they often match, in syntax that both engines share. */
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
  it("matches like JavaScript's engine for any pattern", () => {
    let compared = 0;
    const numRuns = rounds(500, 2000);
    fc.assert(
      fc.property(pattern, fc.array(text, { minLength: 5, maxLength: 5 }), (source, texts) => {
        let made: Pattern;
        try {
          made = patternOf(source);
        } catch (error) {
          expect(error).toBeInstanceOf(PatternError);
          return;
        }
        compared++;
        for (const given of texts) expect(made.matches(given)).toEqual(reference(source, given));
      }),
      { numRuns },
    );
    // Some are refused, because they match the empty text.
    expect(compared).toBeGreaterThan(numRuns / 4);
  });

  const known = [
    String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
    String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
    String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  ];
  it.each(known)("gives the same with and without a time limit: %s", (source) => {
    // With a group around it, the pattern is not a known one, so its time is limited.
    const [unlimited, limited] = [patternOf(source), patternOf(`(?:${source})`)];
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
          expect(unlimited.matches(given)).toEqual(limited.matches(given));
        },
      ),
      { numRuns: 300 },
    );
  });

  // Each of these takes a backtracking engine time quadratic or exponential in the text.
  const hostile: readonly [string, string][] = [
    ["(a+)+b", "a".repeat(50_000)],
    [String.raw`\s*x`, " ".repeat(50_000)],
    ["b*c|b", "b".repeat(50_000)],
    ["a++b|a", "a".repeat(50_000)],
    [".*.*.*=.*", "x".repeat(20_000)],
    ["(?:[ab]+[bc]*)?a+d", "abc".repeat(10_000)],
    [String.raw`^(?:\w+\s?)+$|x`, `${"word ".repeat(10_000)}!`],
    ["(?=(a+)+b)a", "a".repeat(50_000)],
    ["((a{1,30}){1,30}){1,30}b", "a".repeat(50_000)],
  ];
  // Processor time of the process, independent of other load.
  it.each(hostile)("matches or is refused within its time: %s", (source, given) => {
    const started = process.cpuUsage();
    try {
      patternOf(source).matches(given);
    } catch (error) {
      expect(error).toBeInstanceOf(PatternError);
    }
    const { user, system } = process.cpuUsage(started);
    expect((user + system) / 1e6).toBeLessThan(5);
  });

  it("refuses a pattern that takes too long, over all texts of a call together", () => {
    expect(() => patternOf("(a+)+b").matches("a".repeat(100))).toThrow(
      new PatternError("it takes longer than 1.0 seconds for this text"),
    );
    const slow = patternOf(String.raw`(?:\s*)x|y`);
    const texts = Array.from({ length: 5 }, () => " ".repeat(80_000));
    const started = process.cpuUsage();
    expect(() => slow.matchesOfAll([...texts, "a".repeat(100)])).toThrow(PatternError);
    const { user, system } = process.cpuUsage(started);
    expect((user + system) / 1e6).toBeLessThan(8);
  });

  it("refuses a match that exceeds the engine's stack", () => {
    // A choice in the loop, for each of which the engine keeps a place to return to: others need none until V8 stops optimizing.
    expect(() => patternOf("(?:é|ab)+").matches("é".repeat(2 ** 24))).toThrow(/too long/);
  });

  it.each<[string, string, number[]]>([
    // Oniguruma's \w is neither JavaScript's nor a union of categories: it has superscripts, but not every number.
    [String.raw`\w+`, "²①ⓐ_é", [0, 1, 2, 5]],
    [String.raw`[^\W]`, "²①", [0, 1]],
    [String.raw`\s`, "a\u0085\ufeff", [1, 2]],
    ["(?i:k)", "kK\u212a", [0, 1, 1, 2, 2, 3]],
    ["(?i:[^k])x", "kxKxax", [4, 6]],
    ["(?i:a(?-i:b))", "AbAB", [0, 2]],
    ["a?+a|b", "aab", [0, 2, 2, 3]],
    ["(?>ab?)b|c", "abbabc", [0, 3, 5, 6]],
    ["(?>a)(?>b)(a)b", "abab", [0, 4]],
    ["a{1,2}+b", "aaab", [0, 4]],
    ["[a-c&&[^b]]", "abc", [0, 1, 2, 3]],
    ["^a|b$", "ab\na\nb", [0, 1, 1, 2, 3, 4, 5, 6]],
    ["x^|a\n^", "a\n", []],
    ["a{,2}b", "aaab", [1, 4]],
    [String.raw`\x{1F525}\u00e9\x41]`, "🔥éA]", [0, 5]],
    [String.raw`\p{^Han}\P{Lu}`, "aB中bab", [1, 3, 3, 5]],
    ["a(?!b+c)", "abbcab", [4, 5]],
  ])("matches %s like Oniguruma", (source, given, expected) => {
    expect(patternOf(source).matches(given)).toEqual(expected);
  });

  it.each([
    ["a*", /empty text/],
    ["(?:a?)+", /can be empty cannot be repeated/],
    ["(a", /Unclosed group/],
    ["a)", /Unmatched "\)"/],
    ["*a", /requires a repeatable token/],
    ["[a", /Unclosed character class/],
    ["[]", /Unclosed character class/],
    ["[z-a]", /range/],
    [String.raw`(a)\1`, /backreference is not supported/],
    ["(?<=a)b", /look-behind/],
    ["(?i)a", /directive is not supported/],
    ["(?m:a)", /flag i/],
    ["a{2}?", /different engines/],
    ["a{0}b", /repeats nothing/],
    ["a[b&&]", /empty part/],
    ["a[b&&&&c]", /empty part/],
    [String.raw`(?i:\p{Lu})`, /Lu is not supported when case/],
    [String.raw`\Gb`, /search start/],
    [String.raw`\ud800`, /surrogate/],
    ["[[:alpha:]]", /posix alpha/],
    [String.raw`\p{Cherokee}`, /property Cherokee/],
    [String.raw`\bword`, /word boundary/],
    ["(?i:ss)", /fold/],
    ["(?i:é)", /ASCII letters/],
    ["(".repeat(9000) + "a" + ")".repeat(9000), /deep/],
  ])("refuses what might match differently from Python: %s", (source, message) => {
    expect(() => patternOf(source)).toThrow(PatternError);
    expect(() => patternOf(source)).toThrow(message);
  });
});
