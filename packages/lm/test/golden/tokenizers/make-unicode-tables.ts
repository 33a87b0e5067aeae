// Writes src/tokenizer/unicode-tables.ts from what make_unicode_tables.py found: npx tsx make-unicode-tables.ts tables.json
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

type Range = [first: number, last: number];
const found = JSON.parse(readFileSync(process.argv[2]!, "utf8")) as {
  version: string;
  categories: Record<string, Range[]>;
  sets: Record<string, Range[]>;
  combining: Range[];
  forms: Record<string, Record<string, string>>;
};

const names = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs Cn".split(" ");
found.categories["Cs"] = [[0xd800, 0xdfff]];
const runs = names
  .flatMap((name, number) => {
    return found.categories[name]!.flatMap(([first, last]) =>
      // Python has no surrogates, so a range may skip them.
      first < 0xd800 && last > 0xdfff
        ? [
            [first, 0xd7ff, number],
            [0xe000, last, number],
          ]
        : [[first, last, number]],
    );
  })
  .sort(([one], [other]) => one! - other!);
let next = 0;
for (const [first, last] of runs) {
  if (first !== next) throw new Error(`no category for U+${next.toString(16)}`);
  next = last! + 1;
}

const pack = (ranges: readonly Range[]) => {
  let end = 0;
  return ranges
    .map(([first, last]) => {
      const words = `${(first - end).toString(36)} ${(last - first).toString(36)}`;
      end = last + 1;
      return words;
    })
    .join(" ");
};
const members = (ranges: readonly Range[]) => {
  const points = new Set<number>();
  for (const [first, last] of ranges) for (let point = first; point <= last; point++) points.add(point);
  return points;
};
const rangesOf = (points: ReadonlySet<number>) => {
  const ranges: Range[] = [];
  for (const point of [...points].sort((one, other) => one - other)) {
    if (ranges.at(-1)?.[1] === point - 1) ranges.at(-1)![1] = point;
    else ranges.push([point, point]);
  }
  return ranges;
};

// Characters unknown to the library, which Node's normal forms must leave unchanged. They include unassigned
// characters, for later versions of Node.
const unknown = members(found.categories["Cn"]!);
const combining = members(found.combining);
for (let point = 0; point < 0x110000; point++) {
  if (point >= 0xd800 && point < 0xe000) continue;
  const char = String.fromCodePoint(point);
  for (const [form, changed] of Object.entries(found.forms)) {
    const here = char.normalize(form);
    if (here === (changed[point] ?? char)) continue;
    unknown.add(point);
    // Its parts must not be composed either.
    if (form === "NFD") unknown.add(here.codePointAt(0)!);
  }
  const decomposed = char.normalize("NFD");
  const combines =
    (char + "\u0334").normalize("NFD") !== decomposed + "\u0334" ||
    ("x\u0345" + char).normalize("NFD") !== "x\u0345" + decomposed;
  if (combines !== combining.has(point)) unknown.add(point);
}

const { space, onigurumaWord, word, numeric, punctuation, bertRemoved, bertSpace, cjk, marks, accents, ...scripts } =
  found.sets;
const sets = {
  space,
  onigurumaWord,
  word,
  numeric,
  punctuation,
  bertRemoved,
  bertSpace,
  cjk,
  marks,
  accents,
  notNormalized: rangesOf(unknown),
  ...scripts,
};
const text = `// Made by test/golden/tokenizers/make_unicode_tables.py out of Python's tokenizers ${found.version}; not to be edited.
// Which characters are letters, marks, spaces or punctuation differs between the Unicode versions that the parts of
// that library were built with, and between versions of Node: so the answers are those of the library, by code point.

/** Names of the general categories, in the order that CATEGORY_RUNS counts them. */
export const CATEGORIES = ${JSON.stringify(names)};

/** The whole code space in runs of one category: its number in base 36 (one digit), then the run's length in base 36. */
export const CATEGORY_RUNS =
  ${JSON.stringify(runs.map(([first, last, number]) => number!.toString(36) + (last! - first! + 1).toString(36)).join(" "))};

/** Sets of code points: gap to the last range, length of this one minus one, in base 36, in turn. */
export const SETS = {
${Object.entries(sets)
  .map(([name, ranges]) => `  ${name}: ${JSON.stringify(pack(ranges!))},`)
  .join("\n")}
} as const;
`;
writeFileSync(fileURLToPath(new URL("../../../src/tokenizer/unicode-tables.ts", import.meta.url)), text);
